package manifest

import (
	"bytes"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/capstan-cd/capstan/shared/fault"
)

// EncryptedBlock is the field of an object in which SOPS stores how the object
// is encrypted.
const EncryptedBlock = "sops"

// KeyOrder is a field of the block of an encrypted object: the keys of each of
// its maps in the order of the file. SOPS authenticates values in that order,
// which the canonical form does not have.
const KeyOrder = "capstan_key_order"

// cipherPrefix is how every value begins that SOPS has encrypted.
const cipherPrefix = "ENC[AES256_GCM,data:"

// Ciphertext reports whether a value is one that SOPS has encrypted.
func Ciphertext(s string) bool { return strings.HasPrefix(s, cipherPrefix) }

// Encrypted reports whether SOPS has encrypted an object. Its values are
// ciphertext until an agent decrypts them, so it is neither normalised nor
// applied as it is.
func Encrypted(o *Object) bool {
	block, ok := o.Object[EncryptedBlock].(map[string]any)
	return ok && text(block["mac"]) != ""
}

// RecordKeyOrder records the order of the keys of an encrypted object's file.
// Other objects are not changed.
func RecordKeyOrder(o *Object, n *yaml.Node) {
	block, ok := o.Object[EncryptedBlock].(map[string]any)
	if !ok || n == nil || !Encrypted(o) {
		return
	}
	order := map[string]any{}
	if n.Kind == yaml.DocumentNode && len(n.Content) == 1 {
		n = n.Content[0]
	}
	addKeyOrder(order, n, "", 0)
	block[KeyOrder] = order
}

// maxOrderDepth ends the walk of a text with anchors that contain themselves,
// which is refused elsewhere.
const maxOrderDepth = 256

// addKeyOrder adds the keys of the maps of a node.
func addKeyOrder(order map[string]any, n *yaml.Node, path string, depth int) {
	if depth > maxOrderDepth || len(order) > maxOrderDepth*maxOrderDepth {
		return
	}
	switch n.Kind {
	case yaml.MappingNode:
		keys := make([]any, 0, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			name := n.Content[i].Value
			if path == "" && name == EncryptedBlock {
				continue
			}
			keys = append(keys, name)
			addKeyOrder(order, n.Content[i+1], OrderPath(path, name), depth+1)
		}
		order[path] = keys
	case yaml.SequenceNode:
		for i, c := range n.Content {
			addKeyOrder(order, c, OrderPath(path, strconv.Itoa(i)), depth+1)
		}
	case yaml.AliasNode, yaml.ScalarNode, yaml.DocumentNode:
	}
}

// OrderPath is the entry of KeyOrder for what is below another entry: a JSON
// pointer, which is empty for the object itself.
func OrderPath(path, step string) string {
	return path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(step)
}

// recordJSONOrder is RecordKeyOrder for an object of a JSON file.
func (p *parser) recordJSONOrder(m map[string]any, data []byte) {
	o := &Object{Object: m}
	if !Encrypted(o) {
		return
	}
	var n yaml.Node
	if yaml.NewDecoder(bytes.NewReader(data)).Decode(&n) == nil {
		RecordKeyOrder(o, &n)
	}
}

// checkReadable refuses an object whose kind or name is ciphertext: nobody
// could tell which object it is.
func (p *parser) checkReadable(m map[string]any, line func(path ...string) int) error {
	meta, _ := m["metadata"].(map[string]any)
	for _, f := range [...]struct {
		value any
		path  []string
	}{{m["apiVersion"], []string{"apiVersion"}}, {m["kind"], []string{"kind"}}, {meta["name"], []string{"metadata", "name"}}, {meta["namespace"], []string{"metadata", "namespace"}}} {
		if Ciphertext(text(f.value)) {
			err := p.fail(fault.Invalid, line(f.path...), "SOPS has encrypted %s, so the object cannot be identified", strings.Join(f.path, "."))
			return fault.With(err, "", "encrypt only the values: sops encrypt --encrypted-regex '^(data|stringData)$'")
		}
	}
	return nil
}
