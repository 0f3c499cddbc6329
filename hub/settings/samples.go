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
	sampleCertificate = `-----BEGIN CERTIFICATE-----
MIIBiTCCAS+gAwIBAgIUWK2t7MFk4/HHXHdFT3HPQL+ZoRUwCgYIKoZIzj0EAwIw
GjEYMBYGA1UEAwwPZ2l0LmV4YW1wbGUuY29tMB4XDTI2MTEyMzA4MDExMloXDTM2
MTEyMDA4MDExMlowGjEYMBYGA1UEAwwPZ2l0LmV4YW1wbGUuY29tMFkwEwYHKoZI
zj0CAQYIKoZIzj0DAQcDQgAE5ZUOEeaCmVhpP6bvfs+ZYPlCj65hBRlQIa1Mcxl1
RW9N/dTKMHMlocyb/cTP4tC4trs+z+5O4lBu9uOnPwl18aNTMFEwHQYDVR0OBBYE
FCCu/DJtDHJqh4WI+oNGn6r0zIJfMB8GA1UdIwQYMBaAFCCu/DJtDHJqh4WI+oNG
n6r0zIJfMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIhAIAchizp
JPmxRRV4kRA2IjBJCLC4fz7etjDy53ukQB76AiALNDshTPeaP40JSPLp4bXiuQcy
oz8y2XRtZ4kwUu+hAA==
-----END CERTIFICATE-----
`
	sampleKey = `-----BEGIN PGP PUBLIC KEY BLOCK-----

xjMEaVW5ABYJKwYBBAHaRw8BAQdAydlBpjq/CYNPWiN57uuEFISoieh6kbmclB6d
cuNwNhnNHVJlbGVhc2UgPHJlbGVhc2VAZXhhbXBsZS5jb20+wr0EExYIAG8FgmlV
uQACCwcJENg+q+fiR0NINRQAAAAAABwAEHNhbHRAbm90YXRpb25zLm9wZW5wZ3Bq
cy5vcmd2Qn7PqISQc1gCvqLM8ZrjAhUIAhYAAhkBApsDAh4BFiEEADNyWyC2P3oe
nIRS2D6r5+JHQ0gAAJ0rAP48+xzz01JsFRGdFG3/w0GUCbZYOyZ0EJRa5mEuJBd5
DwEA2n8otxgpP7MWo2Qwj8aEH9/2zhz4j6i9N/ICzmxJeQo=
=TI9J
-----END PGP PUBLIC KEY BLOCK-----
`
	sampleTypes = `- field: spec.template.spec
  type: core/v1/PodSpec
`
	sampleCompare = `ignoreAggregatedRoles: true
ignoreResourceStatusField: crd
`
)

const sampleGlobals = `- projectName: base
  labelSelector:
    matchLabels: {team: blue}
    matchExpressions:
      - {key: stage, operator: In, values: [prod, test]}
`

const samplePauses = `[{"cluster":"prod","reason":"incident 4711","by":"ann","since":"2026-01-01T10:00:00Z","until":"2026-01-01T12:00:00Z"}]`
