package charts

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"github.com/klauspost/compress/zstd"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// maxListed bounds the charts and versions of one listing.
const maxListed = 200_000

// ChartTags lists the tags of a chart of a registry.
func (c *Connection) ChartTags(ctx context.Context, ref hub.ChartRef) ([]string, error) {
	if ref.Name == "" {
		return nil, fault.With(fault.New(fault.Invalid, "a registry does not list its charts, only the tags of each"), "", "name the chart")
	}
	if err := checkRef(ref); err != nil {
		return nil, err
	}
	repo, err := c.chartIn(ref)
	if err != nil {
		return nil, err
	}
	return repo.Tags(ctx)
}

// Charts returns the names and versions of all charts of an index, sorted by
// name, the newest version first. Of an index in block style only the lines of versions are parsed.
func (i Index) Charts() ([]hub.PublishedChart, error) {
	r, err := zstd.NewReader(bytes.NewReader(i.Packed), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(256<<20))
	if err != nil {
		return nil, fmt.Errorf("read an index: %w", err)
	}
	defer r.Close()
	text := bufio.NewReaderSize(r, 64<<10)
	l := &listing{}
	read := l.block
	if start, err := text.Peek(1); err == nil && start[0] == '{' {
		read = l.json
	}
	if err := cmp.Or(read(text), l.err()); err != nil {
		return nil, err
	}
	slices.SortStableFunc(l.charts, func(a, b hub.PublishedChart) int { return strings.Compare(a.Name, b.Name) })
	for _, c := range l.charts {
		newestFirst(c.Versions)
	}
	return l.charts, nil
}

// newestFirst sorts versions. What is none comes last, in its order.
func newestFirst(versions []string) {
	parsed := make(map[string]*semver.Version, len(versions))
	for _, text := range versions {
		if v, err := semver.NewVersion(text); err == nil {
			parsed[text] = v
		}
	}
	slices.SortStableFunc(versions, func(a, b string) int {
		x, y := parsed[a], parsed[b]
		switch {
		case x == nil && y == nil:
			return 0
		case x == nil:
			return 1
		case y == nil:
			return -1
		}
		return y.Compare(x)
	})
}

// A listing collects the charts of an index.
type listing struct {
	charts []hub.PublishedChart
	listed int
}

func (l *listing) err() error {
	if l.listed > maxListed {
		return fault.With(fault.New(fault.Exceeded, "the index has more than %d charts and versions", maxListed), "", "name the chart and its version")
	}
	return nil
}

// chart begins a chart. A name that no source can have is left out.
func (l *listing) chart(name string) {
	if l.listed++; checkRef(hub.ChartRef{Name: name}) == nil {
		l.charts = append(l.charts, hub.PublishedChart{Name: name})
	}
}

func (l *listing) version(of, version string) {
	if l.listed++; version == "" || len(version) > maxVersion || len(l.charts) == 0 {
		return
	}
	if last := &l.charts[len(l.charts)-1]; last.Name == of {
		last.Versions = append(last.Versions, version)
	}
}

// json reads an index in JSON, one chart after the other.
func (l *listing) json(text *bufio.Reader) error {
	dec := json.NewDecoder(text)
	if err := enter(dec, "entries"); err != nil {
		return malformed(err)
	}
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return malformed(fmt.Errorf("%v instead of an object", open))
	}
	for dec.More() && l.err() == nil {
		key, err := dec.Token()
		if err != nil {
			return malformed(err)
		}
		var all []struct {
			Version string `json:"version"`
		}
		if err := dec.Decode(&all); err != nil {
			return malformed(err)
		}
		name, _ := key.(string)
		l.chart(name)
		for _, one := range all {
			l.version(name, one.Version)
		}
	}
	return nil
}

// block reads an index in block style.
func (l *listing) block(text *bufio.Reader) error {
	lines := &lineReader{in: text}
	if !lines.until(func(line string) bool { return strings.TrimRight(line, " \r") == "entries:" }) {
		if lines.err == nil && !lines.flow {
			return nil
		}
		return malformed(lines.err)
	}
	at := place{listing: l, charts: -1, dash: -1}
	for l.err() == nil {
		line, ok := lines.next()
		if !ok {
			break
		}
		over, err := at.add(line)
		if err != nil {
			return malformed(err)
		}
		if over {
			break
		}
	}
	if lines.err != nil {
		return malformed(lines.err)
	}
	return nil
}

// A place is where in an index in block style a line is. Indentations below 0
// are not known yet.
type place struct {
	*listing
	charts int    // indentation of the charts' names
	dash   int    // of the dashes before the versions of the chart
	keys   int    // of the keys of one version
	name   string // of the chart
}

// add takes the next line. It reports whether no chart can follow.
func (p *place) add(line string) (over bool, err error) {
	body := strings.TrimLeft(line, " ")
	if trimmed := strings.TrimRight(body, " \r"); trimmed == "" || trimmed[0] == '#' {
		return false, nil
	}
	indent := len(line) - len(body)
	if p.charts < 0 {
		p.charts = indent
	}
	item := strings.HasPrefix(body, "- ")
	switch {
	case p.charts == 0, indent < p.charts:
		return true, nil
	case indent == p.charts && !item:
		p.name, p.dash = keyOf(body), -1
		p.chart(p.name)
		return false, nil
	case item && (p.dash < 0 || indent == p.dash):
		rest := strings.TrimLeft(body[1:], " ")
		p.dash, p.keys = indent, indent+len(body)-len(rest)
		return false, p.key(rest)
	case !item && indent == p.keys && p.dash >= 0:
		return false, p.key(body)
	}
	return false, nil
}

// key reads a key of a version, if it is the version itself. Lines of longer
// texts are indented further, so they are never taken for one.
func (p *place) key(body string) error {
	if strings.HasPrefix(body, "{") {
		var one Published
		if err := yaml.Unmarshal([]byte(body), &one); err != nil {
			return err
		}
		p.version(p.name, one.Version)
		return nil
	}
	if keyOf(body) != "version" {
		return nil
	}
	_, value, _ := strings.Cut(body, ":")
	var version any
	if err := yaml.Unmarshal([]byte(value), &version); err != nil {
		return err
	}
	if text, is := version.(string); is {
		p.version(p.name, text)
		return nil
	}
	p.version(p.name, strings.TrimSpace(value)) // 1.0 is a number to YAML
	return nil
}
