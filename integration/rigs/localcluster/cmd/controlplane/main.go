// Command controlplane is a whole local Kubernetes in one binary: etcd,
// kube-apiserver, the controllers that are needed, kube-scheduler and KWOK,
// which plays the nodes. The name it is started under (or its first argument)
// chooses which of them it is. It serves the demo, the integration tests and
// the benchmarks, on loopback only, and is never shipped.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/capstan-cd/capstan/integration/rigs/localcluster/controllers"
)

func main() {
	name := filepath.Base(os.Args[0])
	if len(os.Args) > 1 && parts[name] == nil {
		name = os.Args[1]
		os.Args = append([]string{name}, os.Args[2:]...)
	}
	run := parts[name]
	if run == nil {
		fmt.Fprintln(os.Stderr, "controlplane: start it as etcd, kube-apiserver, kube-controller-manager, kube-scheduler or kwok")
		os.Exit(2)
	}
	os.Exit(run())
}

// parts run one part of Kubernetes each and give their exit code.
var parts = map[string]func() int{
	"etcd": func() int {
		etcdmain.Main(os.Args)
		return 0
	},
	"kube-apiserver":          command(apiserver.NewAPIServerCommand),
	"kube-controller-manager": command(controllers.NewCommand),
	"kube-scheduler":          command(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kwok":                    nodes,
}

func command(build func() *cobra.Command) func() int {
	return func() int { return cli.Run(build()) }
}
