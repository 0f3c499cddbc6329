hs = {}
if obj.status ~= nil then
  if obj.status.conditions ~= nil then
    for _, condition in ipairs(obj.status.conditions) do
      if condition.type == "Ready" then
        if condition.status == "True" then
          hs.status = "Healthy"
          hs.message = "Certificate is ready"
          return hs
        else
          hs.status = "Degraded"
          hs.message = condition.message
          return hs
        end
      end
    end
  end
end
hs.status = "Progressing"
hs.message = "Waiting for certificate"
return hs
