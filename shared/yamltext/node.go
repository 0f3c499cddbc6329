package yamltext

import (
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
	sigs "sigs.k8s.io/yaml"
)

// DecodeNode reads a part of a text into a struct, as Decode reads a whole
// text. The file and the path of the part are those that errors name.
func DecodeNode(file string, n *yaml.Node, path string, into any) error {
	if err := CheckNode(file, n, path, into); err != nil {
		return err
	}
	budget := maxNodes
	whole := expand(n, &budget)
	if whole == nil {
		return at(file, n.Line, path, "it is too large when its anchors are expanded")
	}
	text, err := yaml.Marshal(whole)
	if err != nil {
		return at(file, n.Line, path, "it cannot be read")
	}
	if err := sigs.UnmarshalStrict(text, into); err != nil {
		return at(file, n.Line, path, "%s", strings.TrimPrefix(strings.TrimPrefix(err.Error(), "error unmarshaling JSON: "), "while decoding JSON: "))
	}
	return nil
}

// CheckNode compares the fields of a part of a text with those of a struct,
// without reading their values.
func CheckNode(file string, n *yaml.Node, path string, as any) error {
	return check(file, n, reflect.TypeOf(as), path)
}

// maxNodes is how many values a part has at most, with its anchors expanded.
const maxNodes = 20_000

// expand returns a copy that names no anchor, because what is named may be
// outside of the part. It is nil beyond the budget, which also ends anchors
// that contain themselves.
func expand(n *yaml.Node, budget *int) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	if *budget--; *budget < 0 {
		return nil
	}
	c := *n
	c.Anchor, c.Content = "", make([]*yaml.Node, len(n.Content))
	for i, child := range n.Content {
		if c.Content[i] = expand(child, budget); c.Content[i] == nil {
			return nil
		}
	}
	return &c
}
