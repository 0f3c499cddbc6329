package settings

// Values that show how a key is written.
const (
	sampleFilter = `- apiGroups: [velero.io]
  kinds: [Backup, Restore]
  clusters: ["*"]
`
	sampleMap = `cert-manager.io/Certificate:
  health.lua: |
    return {status = "Healthy"}
  ignoreDifferences: |
    jsonPointers:
      - /spec/duration
`
	sampleHealth = `hs = {status = "Progressing", message = "Waiting"}
return hs
`
	sampleActions = `discovery.lua: |
  actions = {}
  actions["pause"] = {}
  return actions
definitions:
  - name: pause
    action.lua: |
      obj.spec.paused = true
      return obj
`
	sampleIgnore = `jsonPointers:
  - /spec/replicas
jqPathExpressions:
  - .webhooks[]?.clientConfig.caBundle
managedFieldsManagers:
  - kube-controller-manager
`
	sampleTypes = `- field: spec.template.spec
  type: core/v1/PodSpec
`
	sampleCompare = `ignoreAggregatedRoles: true
ignoreResourceStatusField: crd
`
)
