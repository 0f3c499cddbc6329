package hub

import "strings"

// A ChartRef names a chart of a chart repository or registry, as a Chart.yaml or
// a kustomization writes it.
type ChartRef struct {
	// Repository is an http or https address, an oci address without the
	// chart's name, or "@name" or "alias:name" for a registered repository.
	Repository string `json:"repository"`
	Name       string `json:"name"`
	Version    string `json:"version,omitempty"` // exact, or a range; empty: the newest
}

// String is the ref as one line: repository, name and version with a space
// between them. ParseChartRef undoes it.
func (r ChartRef) String() string { return r.Repository + " " + r.Name + " " + r.Version }

// ParseChartRef reads what ChartRef.String wrote. Only the version may hold
// spaces.
func ParseChartRef(text string) ChartRef {
	repository, rest, _ := strings.Cut(text, " ")
	name, version, _ := strings.Cut(rest, " ")
	return ChartRef{Repository: repository, Name: name, Version: version}
}

// Alias returns the name under which the repository is registered, if the ref
// names it so.
func (r ChartRef) Alias() (name string, is bool) {
	if name, is = strings.CutPrefix(r.Repository, "@"); is {
		return name, true
	}
	return strings.CutPrefix(r.Repository, "alias:")
}

// A ChartArchive is a packed chart.
type ChartArchive struct {
	Version string
	Digest  string // "sha256:" and 64 hex digits, of Data
	Data    []byte // a gzipped tar; nil where only the digest was asked for
}
