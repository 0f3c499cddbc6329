package link_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// SEC-D1: every call that the link's protocol declares is either one of those
// that TestGuard tries as every kind of caller, or one that agents answer.
func TestEveryCallIsGuarded(t *testing.T) {
	t.Parallel()
	tried := methods()
	protoregistry.GlobalFiles.RangeFilesByPackage("link.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			service := f.Services().Get(i)
			for j := range service.Methods().Len() {
				name := "/" + string(service.FullName()) + "/" + string(service.Methods().Get(j).Name())
				agents := strings.HasPrefix(name, "/link.v1.Ops/") || strings.HasPrefix(name, "/link.v1.Acts/") || strings.HasPrefix(name, "/link.v1.Upgrades/")
				if at := slices.Index(tried, name); at < 0 != agents {
					t.Errorf("%s: tried as every kind of caller: %v; answered by agents: %v", name, at >= 0, agents)
				}
			}
		}
		return true
	})
	if len(tried) == 0 {
		t.Error("nothing is tried")
	}
}
