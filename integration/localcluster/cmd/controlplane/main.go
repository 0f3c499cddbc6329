// Command controlplane is etcd, kube-apiserver, kube-controller-manager and
// kube-scheduler in one binary. The name it is started under (or its first
// argument) chooses which of them it is. It serves the demo, the integration
// tests and the benchmarks, on loopback only, and is never shipped.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	name := filepath.Base(os.Args[0])
	if len(os.Args) > 1 && commands[name] == nil && name != "etcd" {
		name = os.Args[1]
		os.Args = append([]string{name}, os.Args[2:]...)
	}
	if name == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	build := commands[name]
	if build == nil {
		fmt.Fprintln(os.Stderr, "controlplane: start it as etcd, kube-apiserver, kube-controller-manager or kube-scheduler")
		os.Exit(2)
	}
	os.Exit(cli.Run(build()))
}

var commands = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
}
