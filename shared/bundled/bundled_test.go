package bundled_test

import (
	"io/fs"
	"testing"

	"github.com/capstan-cd/capstan/shared/bundled"
	"github.com/capstan-cd/capstan/shared/lua"
)

func TestFind(t *testing.T) {
	t.Parallel()
	c := bundled.New()
	for _, x := range []struct {
		name, group, kind string
		want              bool
	}{
		{"HLT-24 a rule is found by group and kind", "cert-manager.io", "Certificate", true},
		{"HLT-24 the kind must be the very same", "cert-manager.io", "certificate", false},
		{"HLT-05 a kind without a rule has none", "", "ConfigMap", false},
		{"HLT-07 a folder with a star takes all groups that fit", "vpc.aws.crossplane.io", "Anything", true},
		{"HLT-07 a folder with a star takes groups of several parts", "ec2.aws.m.upbound.io", "VPC", true},
		{"HLT-07 a folder with a star needs something before the dot", "upbound.io", "VPC", false},
		{"HLT-07 a kind with a star takes all kinds of the group", "operator.victoriametrics.com", "VMAgent", true},
		{"HLT-07 a star does not match across the end", "cnrm.cloud.google.com.evil", "Thing", false},
		{"names from a cluster lead nowhere else", "..", "embed.go", false},
		{"names from a cluster with a slash lead nowhere else", "argoproj.io/Rollout", "testdata", false},
		{"the name of a folder with a star is no group", "_.crossplane.io", "_", false},
		{"an empty kind has none", "argoproj.io", "", false},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			if source, ok := c.Health(x.group, x.kind); ok != x.want || ok != (source != "") {
				t.Errorf("found %v", ok)
			}
		})
	}
	t.Run("HLT-07 the exact name takes precedence over a pattern", func(t *testing.T) {
		t.Parallel()
		own, _ := c.Health("rds.aws.crossplane.io", "DBInstance")
		all, _ := c.Health("other.aws.crossplane.io", "DBInstance")
		if own == "" || all == "" || own == all {
			t.Error("the rule of the group is not the one found")
		}
	})
	t.Run("ACT-11 a script with another file name is found", func(t *testing.T) {
		t.Parallel()
		if _, ok := c.Action("psmdb.percona.com", "PerconaServerMongoDB", "pause"); !ok {
			t.Error("not found")
		}
		for _, name := range []string{"", "..", "../../Rollout/actions/abort", "no"} {
			if _, ok := c.Action("argoproj.io", "Rollout", name); ok {
				t.Errorf("an action is found by %q", name)
			}
		}
	})
	t.Run("HLT-24 every bundled script is valid", func(t *testing.T) {
		t.Parallel()
		n := 0
		for _, pattern := range []string{"*/*/health.lua", "*/*/actions/discovery.lua", "*/*/actions/*/action*.lua"} {
			files, _ := fs.Glob(bundled.Files(), pattern)
			for _, f := range files {
				data, err := fs.ReadFile(bundled.Files(), f)
				if err != nil {
					t.Fatal(err)
				}
				n++
				if _, err := lua.Compile(f, string(data)); err != nil {
					t.Error(err)
				}
			}
		}
		t.Logf("%d scripts", n)
		if n < 350 {
			t.Errorf("only %d scripts were found", n)
		}
	})
}
