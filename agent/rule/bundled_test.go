package rule_test

import (
	"io/fs"
	"path"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/agent/health"
	"github.com/capstan-cd/capstan/agent/rule"
	"github.com/capstan-cd/capstan/shared/bundled"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// rowOf says which row of the contract names a bundled group.
func rowOf(group string) string {
	for _, r := range []struct{ row, groups string }{
		{"HLTX-01", "batch policy apiextensions.k8s.io gateway.networking.k8s.io snapshot.storage.k8s.io apps"},
		{"HLTX-02", "argoproj.io promoter.argoproj.io numaflow.numaproj.io numaplane.numaproj.io"},
		{"HLTX-03", "cert-manager.io certmanager.k8s.io bitnami.com external-secrets.io kubernetes-client.io onepassword.com networking.gke.io"},
		{"HLTX-04", "cluster.x-k8s.io addons.cluster.x-k8s.io controlplane.cluster.x-k8s.io karpenter.sh karpenter.k8s.aws _.crossplane.io _.upbound.io pkg.crossplane.io" +
			" cloudfront.aws.crossplane.io iam.aws.crossplane.io rds.aws.crossplane.io route53.aws.crossplane.io s3.aws.crossplane.io stacks.crossplane.io _.cnrm.cloud.google.com" +
			" _.services.k8s.aws pulumi.com core.gardener.cloud spot.io iammanager.keikoproj.io nmstate.io"},
		{"HLTX-05", "postgresql.cnpg.io acid.zalan.do k8s.mariadb.com mariadb.mmontes.io psmdb.percona.com pxc.percona.com rabbitmq.com kafka.strimzi.io core.strimzi.io" +
			" platform.confluent.io kafka.banzaicloud.io clickhouse.altinity.com clickhouse-keeper.altinity.com elasticsearch.k8s.elastic.co beat.k8s.elastic.co logstash.k8s.elastic.co" +
			" solr.apache.org zookeeper.pravega.io cassandra.rook.io minio.min.io db.atlasgo.io flink.apache.org sparkoperator.k8s.io"},
		{"HLTX-06", "ceph.rook.io objectbucket.io ocs.openshift.io trident.netapp.io astra.netapp.io cdi.kubevirt.io kubevirt.io"},
		{"HLTX-07", "projectcontour.io gateway.solo.io gloo.solo.io install.istio.io route.openshift.io operator.openshift.io microgateway.airlock.com"},
		{"HLTX-08", "helm.toolkit.fluxcd.io kustomize.toolkit.fluxcd.io source.toolkit.fluxcd.io image.toolkit.fluxcd.io notification.toolkit.fluxcd.io flagger.app" +
			" lifecycle.keptn.sh metrics.keptn.sh rollouts.kruise.io apps.kruise.io game.kruise.io camel.apache.org openfaas.com serving.knative.dev operator.knative.dev" +
			" serving.kserve.io core.spinkube.dev tower.ansible.com operators.coreos.com work.karmada.io"},
		{"HLTX-09", "grafana.integreatly.org grafana-org-operator.kubitus-project.gitlab.io monitoring.coreos.com operator.victoriametrics.com opentelemetry.io jaegertracing.io" +
			" kiali.io coralogix.com datadoghq.com core.humio.com keda.sh kyverno.io policy.open-cluster-management.io proclaim.dogmatiq.io"},
		{"HLTX-10", "apps.openshift.io apps.3scale.net capabilities.3scale.net k8s.keycloak.org services.cloud.sap.com"},
	} {
		for _, g := range strings.Fields(r.groups) {
			if g == group {
				return r.row
			}
		}
	}
	return "HLT-24"
}

// TestBundledCases runs the cases that the Argo project keeps beside each
// bundled rule.
func TestBundledCases(t *testing.T) {
	t.Parallel()
	rules := rule.New(nil)
	files, err := fs.Glob(bundled.Files(), "*/*/health_test.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	cases, seen := 0, map[string]bool{}
	for _, f := range files {
		var table struct {
			Tests []struct {
				InputPath    string `json:"inputPath"`
				HealthStatus struct {
					Status  string `json:"status"`
					Message string `json:"message"`
				} `json:"healthStatus"`
			} `json:"tests"`
		}
		data, err := fs.ReadFile(bundled.Files(), f)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(data, &table); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		dir := path.Dir(f)
		row := rowOf(path.Dir(dir))
		seen[row] = true
		for _, c := range table.Tests {
			cases++
			t.Run(row+" "+dir+" "+path.Base(c.InputPath), func(t *testing.T) {
				t.Parallel()
				got := rules.Bundled(t.Context(), load(t, path.Join(dir, c.InputPath)))
				if want := (health.Status{State: c.HealthStatus.Status, Message: c.HealthStatus.Message}); got != want {
					t.Errorf("got  %+v\nwant %+v", got, want)
				}
			})
		}
	}
	t.Logf("%d cases of %d bundled rules", cases, len(files))
	if len(files) < 238 || cases < 900 {
		t.Errorf("only %d cases of %d rules were found", cases, len(files))
	}
	for _, row := range strings.Fields("HLTX-01 HLTX-02 HLTX-03 HLTX-04 HLTX-05 HLTX-06 HLTX-07 HLTX-08 HLTX-09 HLTX-10") {
		if !seen[row] {
			t.Errorf("no case of %s", row)
		}
	}
}

func load(t *testing.T, name string) *manifest.Object {
	t.Helper()
	data, err := fs.ReadFile(bundled.Files(), name)
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.YAMLToJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	o, err := manifest.FromCanonical(text)
	if err != nil {
		t.Fatal(err)
	}
	return o
}
