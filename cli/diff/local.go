package diff

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/cli/files"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/yamltext"
)

// ReadLocal reads a file, all files of a folder, or the input.
func ReadLocal(from string, stdin io.Reader) ([]Object, error) {
	all, err := files.Read([]string{from}, stdin)
	if err != nil {
		return nil, usage.Wrap(err)
	}
	var out []Object
	for _, file := range all.Parts {
		objects, err := objects(file)
		if err != nil {
			return nil, usage.Wrap(err)
		}
		out = append(out, objects...)
	}
	return out, nil
}

// objects reads the documents of one file.
func objects(p files.Part) ([]Object, error) {
	var out []Object
	var part []string
	start := 1 // line of the document
	for i, line := range strings.Split(string(p.Text)+"\n---", "\n") {
		if trimmed := strings.TrimRight(line, " \t\r"); trimmed != "---" {
			part = append(part, line)
			continue
		}
		o, err := parseObject(p, strings.Join(part, "\n"), start)
		if err != nil {
			return nil, err
		}
		if len(o) > 0 {
			out = append(out, o)
		}
		part, start = nil, i+2
	}
	return out, nil
}

// parseObject parses one document, which begins on a line of the file. An empty
// document has no object.
func parseObject(p files.Part, text string, start int) (Object, error) {
	var o Object
	if err := yaml.Unmarshal([]byte(text), &o); err != nil {
		line, cause := yamltext.Place([]byte(text), errors.New(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")))
		return nil, fmt.Errorf("%s, line %d: not YAML: %s", p.Name, start+line-1, cause)
	}
	if len(o) > 0 && (o.text("kind") == "" || o.text("metadata", "name") == "") {
		return nil, fmt.Errorf("%s, line %d: the document has no kind or no name", p.Name, start)
	}
	return o, nil
}
