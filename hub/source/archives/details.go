package archives

import (
	"io"
	"os"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	maxText        = 500 // bytes of one detail
	maxMaintainers = 20
)

// IsChart stores a chart: the digest of its archive, and what its Chart.yaml
// says. The chart must be the one that was asked for.
func (d *Download) IsChart(digest, name string) error {
	details, err := d.chart()
	if err != nil {
		return err
	}
	if last := name[strings.LastIndexByte(name, '/')+1:]; details.Name != last {
		return fault.With(fault.New(fault.Invalid, "the archive holds the chart %q instead of %q", shorten(details.Name), shorten(last)), "", "correct the repository")
	}
	d.Is(digest, hub.CommitInfo{Message: details.Description, Chart: details})
	return nil
}

// Chart reads the Chart.yaml of an artifact that is a chart.
func (d *Download) Chart() (*hub.ChartInfo, error) { return d.chart() }

func (d *Download) chart() (*hub.ChartInfo, error) {
	const file = "Chart.yaml"
	e, ok := d.unpacker.entries[file]
	switch {
	case !ok || e.Kind != isFile:
		return nil, fault.With(fault.New(fault.Invalid, "the archive is no chart: it has no Chart.yaml"), "", "publish it with helm package")
	case e.Size > maxDetails:
		return nil, fault.New(fault.Exceeded, "the Chart.yaml has more than %d bytes", maxDetails)
	}
	text, err := d.read(e)
	if err != nil {
		return nil, err
	}
	var c struct {
		Name        string `json:"name"`
		Version     string `json:"version"`
		AppVersion  string `json:"appVersion"`
		Description string `json:"description"`
		Home        string `json:"home"`
		Maintainers []struct {
			Name  string `json:"name"`
			Email string `json:"email"`
		} `json:"maintainers"`
	}
	if err := yaml.Unmarshal(text, &c); err != nil {
		return nil, fault.With(fault.Wrap(fault.Invalid, err, "the file cannot be read"), file, "")
	}
	out := &hub.ChartInfo{
		Name: Clip(c.Name), Version: Clip(c.Version), AppVersion: Clip(c.AppVersion), Description: Clip(c.Description), Home: Clip(c.Home),
	}
	for _, m := range c.Maintainers[:min(len(c.Maintainers), maxMaintainers)] {
		who := m.Name
		if m.Email != "" {
			who = strings.TrimSpace(who + " <" + m.Email + ">")
		}
		out.Maintainers = append(out.Maintainers, Clip(who))
	}
	return out, nil
}

// read returns the bytes of a file that was just unpacked.
func (d *Download) read(e entry) ([]byte, error) {
	f, err := os.Open(d.contents)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return io.ReadAll(io.NewSectionReader(f, e.Offset, e.Size))
}

// Clip bounds a text of an archive that people see.
func Clip(s string) string {
	if len(s) > maxText {
		s = s[:maxText] + "…"
	}
	return strings.ToValidUTF8(s, "?")
}
