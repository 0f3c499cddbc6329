package render

import (
	"path"
	"slices"
	"strconv"

	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A render may use at most so many charts from repositories.
const maxCharts = 64

// The files of a chart with its dependencies, and with the chosen versions.
const (
	chartFile        = "Chart.yaml"
	requirementsFile = "requirements.yaml"
)

// charts answers what charts from repositories hold. A worker may be under the
// control of what it renders, so the hub reads itself which charts the tree
// declares: an address that a worker made up could carry away what it has read.
func (r *Recorder) charts(tree hub.Tree, q Question) (Answer, error) {
	declared, err := r.declared(tree, q.Source, q.Names[0])
	if err != nil {
		return Answer{}, err
	}
	var a Answer
	for _, place := range q.Names[1:] {
		i, err := strconv.Atoi(place)
		if err != nil || i < 0 || i >= len(declared) {
			return Answer{}, fault.With(fault.New(fault.Invalid, "the file declares no chart at place %s", quote(place)), q.Names[0], "")
		}
		if r.fetched++; r.fetched > maxCharts {
			return Answer{}, fault.New(fault.Exceeded, "the render uses more than %d charts from repositories", maxCharts)
		}
		f, err := r.chart(q.Source, declared[i])
		if err != nil {
			return Answer{}, err
		}
		a.Files = append(a.Files, f)
	}
	return a, nil
}

// chart returns one archive, or why the application cannot have it. An error is
// one of its repository, which may pass.
func (r *Recorder) chart(source int, ref hub.ChartRef) (File, error) {
	archive, err := r.req.chart(ref, "")
	switch {
	case refused(err):
		return File{Refused: Fail(err)}, nil
	case err != nil:
		if r.trouble == nil {
			r.trouble = err
		}
		return File{}, err
	case r.read+int64(len(archive.Data)) > r.limits.InputBytes:
		return File{}, fault.New(fault.Exceeded, "the files that this render reads have more than %d bytes", r.limits.InputBytes)
	}
	r.read += int64(len(archive.Data))
	in := hub.Input{Source: source, Kind: hub.InputChart, Path: ref.String(), Hash: archive.Digest}
	return File{Found: true, Size: int64(len(archive.Data)), Data: archive.Data}, r.add(in)
}

func (r Request) chart(ref hub.ChartRef, known string) (hub.ChartArchive, error) {
	if r.Chart == nil {
		return hub.ChartArchive{}, fault.New(fault.Invalid, "charts cannot be fetched from repositories here: %s", quote(ref.Name))
	}
	return r.Chart(ref, known)
}

// declared reads which charts a file of the tree declares.
func (r *Recorder) declared(tree hub.Tree, source int, name string) ([]hub.ChartRef, error) {
	base := path.Base(name)
	lock, known := lockFiles()[base]
	if !known && !slices.Contains(kustomizationFiles(), base) {
		return nil, fault.With(fault.New(fault.Invalid, "the file declares no charts"), name, "")
	}
	file, err := r.readFile(tree, source, name)
	if err != nil {
		return nil, err
	}
	var locked File
	if known {
		if locked, err = r.readFile(tree, source, path.Join(path.Dir(name), lock)); err != nil {
			return nil, err
		}
	}
	return DeclaredCharts(name, file.Data, locked.Data)
}

// lockFiles names, for each file that declares dependencies, the one with the
// chosen versions.
func lockFiles() map[string]string {
	return map[string]string{chartFile: "Chart.lock", requirementsFile: "requirements.lock"}
}

func kustomizationFiles() []string {
	return []string{"kustomization.yaml", "kustomization.yml", "Kustomization"}
}

// maxDeclaring is how large a file that declares charts may be, in bytes.
const maxDeclaring = 1 << 20

// DeclaredCharts returns the charts that a Chart.yaml, a requirements.yaml or a
// kustomization uses from repositories, in the order of its list. Those of a
// chart have the versions of the lock file's text, if there is one. An entry of
// the list without a chart is an empty ref.
func DeclaredCharts(name string, text, lock []byte) ([]hub.ChartRef, error) {
	if len(text) > maxDeclaring || len(lock) > maxDeclaring {
		return nil, fault.With(fault.New(fault.Exceeded, "the file or its lock has more than %d bytes", maxDeclaring), name, "")
	}
	var file struct {
		Dependencies []*hub.ChartRef  `json:"dependencies"`
		HelmCharts   []kustomizeChart `json:"helmCharts"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, fault.With(fault.Wrap(fault.Invalid, err, "the file cannot be read: %s", err), name, "")
	}
	if _, isChart := lockFiles()[path.Base(name)]; !isChart {
		return kustomizeCharts(file.HelmCharts), nil
	}
	var chosen struct {
		Dependencies []*hub.ChartRef `json:"dependencies"`
	}
	if err := yaml.Unmarshal(lock, &chosen); err != nil {
		return nil, fault.With(fault.Wrap(fault.Invalid, err, "the lock file cannot be read: %s", err), name, "run helm dependency update and commit the lock file")
	}
	return lockedCharts(file.Dependencies, chosen.Dependencies), nil
}

// A kustomizeChart is an entry of helmCharts in a kustomization.
type kustomizeChart struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Repo    string `json:"repo"`
	Devel   bool   `json:"devel"`
}

func kustomizeCharts(charts []kustomizeChart) []hub.ChartRef {
	out := make([]hub.ChartRef, len(charts))
	for i, c := range charts {
		out[i] = hub.ChartRef{Repository: c.Repo, Name: c.Name, Version: c.Version}
		if c.Devel && c.Version == "" {
			out[i].Version = ">0.0.0-0" // pre-releases too
		}
	}
	return out
}

// lockedCharts returns the declared charts with the versions of the lock file,
// which has them in the same order.
func lockedCharts(declared, locked []*hub.ChartRef) []hub.ChartRef {
	out := make([]hub.ChartRef, len(declared))
	for i, d := range declared {
		if d == nil {
			continue
		}
		out[i] = *d
		if i < len(locked) && locked[i] != nil && locked[i].Name == d.Name {
			out[i].Version = locked[i].Version
		}
	}
	return out
}
