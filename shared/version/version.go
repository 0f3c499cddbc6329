// Package version identifies the build. It reads only what the Go toolchain
// wrote into the binary. Command lines, Hello and the API show it.
package version

import "runtime/debug"

// Number is the next release of this tree.
const Number = "0.1.0"

// String is the release with the commit that it was built from, such as
// "0.1.0+1a2b3c4d5e6f" or "0.1.0+1a2b3c4d5e6f.dirty", and Number alone if the
// build has no commit.
func String() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Number
	}
	return describe(info.Settings)
}

// describe joins Number with the version control settings of a build.
func describe(settings []debug.BuildSetting) string {
	var revision, dirty string
	for _, s := range settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				dirty = ".dirty"
			}
		}
	}
	if revision == "" {
		return Number
	}
	if len(revision) > 12 {
		revision = revision[:12]
	}
	return Number + "+" + revision + dirty
}
