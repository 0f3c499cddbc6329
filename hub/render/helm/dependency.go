package helm

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"

	"github.com/capstan-cd/capstan/shared/fault"
)

// missing marks the placeholder of a chart that is declared but not there, with
// the reason.
const missing = "capstan.dev/missing-dependency"

// far returns a chart that a dependency names in a repository or registry. One
// that cannot be fetched is a placeholder, until conditions and tags are
// evaluated. synced is the error of an outdated lock file.
func (l *loading) far(dep *chart.Dependency, dir string, place int, synced error) (*chart.Chart, error) {
	if dep.Repository == "" {
		return standIn(dep, "it names no repository"), nil
	}
	if synced != nil {
		return nil, synced
	}
	file, err := l.declaring(dir)
	if err != nil {
		return nil, err
	}
	found, err := l.job.Files.Chart(l.ctx, file, place)
	if err != nil {
		return nil, err
	}
	if found.Refused != nil {
		return standIn(dep, fault.Sentence(found.Refused.Err())), nil
	}
	at := fmt.Sprintf("%s, dependency %s", file, dep.Name)
	sub, err := unpack(found.Data)
	if err != nil {
		return nil, fault.With(err, at, "")
	}
	if sub.Name() != dep.Name {
		return nil, fault.With(fault.New(fault.Invalid, "%s contains the chart %q", dep.Repository, sub.Name()), at, "")
	}
	return sub, nil
}

// unpack reads an archive. Its sizes are bounded by Helm's loader and by the
// worker's memory.
func unpack(archive []byte) (*chart.Chart, error) {
	c, err := loader.LoadArchive(bytes.NewReader(archive))
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the archive cannot be loaded: %s", err)
	}
	return c, nil
}

// declaring is the file with the dependencies of a chart.
func (l *loading) declaring(dir string) (string, error) {
	old := path.Join(dir, "requirements.yaml")
	found, err := l.job.Files.Read(l.ctx, old)
	if err != nil {
		return "", err
	}
	if found[0].Found {
		return old, nil
	}
	return path.Join(dir, "Chart.yaml"), nil
}

// inSync checks that the lock file was made for the current dependencies, as
// helm dependency build does. Otherwise its versions are those of earlier
// dependencies.
func inSync(c *chart.Chart, dir string) error {
	if c.Lock == nil {
		return nil
	}
	file, lock := "Chart.yaml", "Chart.lock"
	sums := []string{hash([2][]*chart.Dependency{c.Metadata.Dependencies, c.Lock.Dependencies})}
	if c.Metadata.APIVersion == chart.APIVersionV1 {
		file, lock = "requirements.yaml", "requirements.lock"
		sums = append(sums, hash(map[string][]*chart.Dependency{"dependencies": c.Metadata.Dependencies}))
	}
	for _, sum := range sums {
		if sum == c.Lock.Digest {
			return nil
		}
	}
	return fault.With(fault.New(fault.Invalid, "it was made for other dependencies than those of %s", file), path.Join(dir, lock),
		"run helm dependency update and commit the lock file")
}

// hash is what Helm writes into a lock file.
func hash(dependencies any) string {
	text, err := json.Marshal(dependencies)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// standIn makes the placeholder of a chart that is not there.
func standIn(dep *chart.Dependency, why string) *chart.Chart {
	wants := fmt.Sprintf("%q", dep.Name)
	if dep.Version != "" {
		wants += " (" + dep.Version + ")"
	}
	if dep.Repository != "" {
		wants += " from " + dep.Repository
	}
	dep.Version = "0.0.0"
	return &chart.Chart{Metadata: &chart.Metadata{
		APIVersion: chart.APIVersionV2, Name: dep.Name, Version: "0.0.0", Annotations: map[string]string{missing: wants + ": " + why},
	}}
}

// absent refuses a chart that needs charts that cannot be had, and names all.
func absent(c *chart.Chart, dir string) error {
	var lacks string
	for _, d := range c.Dependencies() {
		if wants, is := d.Metadata.Annotations[missing]; is {
			if lacks != "" {
				lacks += "; "
			}
			lacks += wants
		}
	}
	if lacks == "" {
		return nil
	}
	return fault.With(fault.New(fault.Invalid, "the chart %s needs a chart that is not in its charts directory and cannot be fetched: %s", c.Name(), lacks),
		path.Join(dir, "Chart.yaml"), "let the project permit the repository, correct its address, or run helm dependency build and commit the charts directory")
}
