// Package sops decrypts objects that were encrypted in the format of SOPS, with
// age keys. It is pure: object and keys come in, the decrypted object goes out.
// Every value is authenticated with its place, and the message authentication
// code covers the object, so that neither can be changed without the key.
// Errors never contain a value.
package sops

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"filippo.io/age"
	"filippo.io/age/armor"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// Options of a decryption.
type Options struct {
	// IgnoreMAC accepts an object that was changed after its encryption, such as
	// by Kustomize. Each encrypted value is still authenticated.
	IgnoreMAC bool
}

// A Leaf is a decrypted value and where it stands.
type Leaf struct {
	Path  []string // keys, and indexes of lists
	Value any
}

// ParseKeys reads age identities, one per line; comments and empty lines are
// skipped.
func ParseKeys(text []byte) ([]age.Identity, error) {
	keys, err := age.ParseIdentities(bytes.NewReader(text))
	if err != nil {
		return nil, fault.New(fault.Invalid, "it has no age key in the format of age-keygen (AGE-SECRET-KEY-1…)")
	}
	return keys, nil
}

// Decrypt returns a copy of an encrypted object without its block, with every
// encrypted value decrypted, and what was decrypted.
func Decrypt(o *manifest.Object, keys []age.Identity, opts Options) (*manifest.Object, []Leaf, error) {
	block, ok := o.Object[manifest.EncryptedBlock].(map[string]any)
	if !ok {
		return nil, nil, fault.New(fault.Invalid, "it has no block %q", manifest.EncryptedBlock)
	}
	m, err := parseMetadata(block)
	if err != nil {
		return nil, nil, err
	}
	key, err := m.dataKey(keys)
	if err != nil {
		return nil, nil, err
	}
	out := o.DeepCopy()
	delete(out.Object, manifest.EncryptedBlock)
	w := &walk{metadata: m, key: key}
	if m.macOnlyEncrypted {
		seed := sha256.Sum256([]byte("sops"))
		w.mac = seed[:]
	}
	if _, err := w.value(out.Object, nil, nil, ""); err != nil {
		return nil, nil, err
	}
	if !opts.IgnoreMAC {
		if err := w.verify(); err != nil {
			return nil, nil, err
		}
	}
	return out, w.leaves, nil
}

// metadata is the block of an encrypted file.
type metadata struct {
	age                                  []string // the data key, encrypted for each recipient
	unencryptedSuffix, encryptedSuffix   string
	unencryptedPattern, encryptedPattern *regexp.Regexp
	mac, modified                        string
	macOnlyEncrypted                     bool
	order                                map[string]any // keys of the maps in the order of the file
}

// foreign are the blocks of other kinds of keys.
var foreign = [...]string{"kms", "gcp_kms", "azure_kv", "hc_vault", "hckms", "pgp"}

func parseMetadata(block map[string]any) (metadata, error) {
	m := metadata{
		mac: word(block["mac"]), unencryptedSuffix: word(block["unencrypted_suffix"]), encryptedSuffix: word(block["encrypted_suffix"]),
	}
	m.macOnlyEncrypted, _ = block["mac_only_encrypted"].(bool)
	if groups, _ := block["key_groups"].([]any); len(groups) > 0 {
		return m, unsupported("key groups (a Shamir threshold)")
	}
	for _, f := range [...]string{"unencrypted_comment_regex", "encrypted_comment_regex"} {
		if word(block[f]) != "" {
			return m, unsupported(f)
		}
	}
	for _, f := range [...]struct {
		name string
		to   **regexp.Regexp
	}{{"unencrypted_regex", &m.unencryptedPattern}, {"encrypted_regex", &m.encryptedPattern}} {
		if text := word(block[f.name]); text != "" {
			re, err := regexp.Compile(text)
			if err != nil {
				return m, fault.New(fault.Invalid, "%s of its block %q is no regular expression", f.name, manifest.EncryptedBlock)
			}
			*f.to = re
		}
	}
	when, err := time.Parse(time.RFC3339, word(block["lastmodified"]))
	if err != nil {
		return m, fault.New(fault.Invalid, "lastmodified of its block %q is not a time", manifest.EncryptedBlock)
	}
	m.modified = when.Format(time.RFC3339)
	list, _ := block["age"].([]any)
	for _, entry := range list {
		e, _ := entry.(map[string]any)
		if text := word(e["enc"]); text != "" {
			m.age = append(m.age, text)
		}
	}
	m.order, _ = block[manifest.KeyOrder].(map[string]any)
	if len(m.age) > 0 {
		return m, nil
	}
	for _, f := range foreign {
		if list, _ := block[f].([]any); len(list) > 0 {
			return m, unsupported(f + " keys only")
		}
	}
	return m, fault.New(fault.Invalid, "its block %q names no age recipient", manifest.EncryptedBlock)
}

func unsupported(what string) error {
	return fault.With(fault.New(fault.Invalid, "it is encrypted with %s, which agents do not support", what), "",
		"encrypt it for an age recipient: sops encrypt --age age1…")
}

func word(v any) string {
	s, _ := v.(string)
	return s
}

// maxKey limits what is read of an encrypted data key, whose size is fixed.
const maxKey = 1 << 10

// dataKey decrypts the key of the values with one of the identities.
func (m metadata) dataKey(keys []age.Identity) ([]byte, error) {
	if len(keys) == 0 {
		return nil, fault.New(fault.Denied, "no age key is available for it")
	}
	for _, text := range m.age {
		r, err := age.Decrypt(armor.NewReader(strings.NewReader(text)), keys...)
		if err != nil {
			continue // for another recipient
		}
		key, err := io.ReadAll(io.LimitReader(r, maxKey))
		if err == nil && len(key) == 32 {
			return key, nil
		}
	}
	return nil, fault.With(fault.New(fault.Denied, "none of the age keys that are available for it decrypts it"), "",
		"encrypt it for the recipient of the cluster's key, or add its key to the agent's secrets policy")
}

// walk decrypts the values of an object in the order of its file.
type walk struct {
	metadata metadata
	key      []byte
	mac      []byte // what the message authentication code covers
	leaves   []Leaf
}

// value decrypts one value. path is SOPS's, without the indexes of lists; place
// is ours, with them, and at is place as an entry of the recorded order.
func (w *walk) value(v any, path, place []string, at string) (any, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case map[string]any:
		for _, k := range w.metadata.keys(v, at) {
			out, err := w.value(v[k], with(path, k), with(place, k), manifest.OrderPath(at, k))
			if err != nil {
				return nil, err
			}
			v[k] = out
		}
		return v, nil
	case []any:
		for i := range v {
			out, err := w.value(v[i], path, with(place, strconv.Itoa(i)), manifest.OrderPath(at, strconv.Itoa(i)))
			if err != nil {
				return nil, err
			}
			v[i] = out
		}
		return v, nil
	}
	return w.leaf(v, path, place)
}

func with(path []string, step string) []string { return append(path[:len(path):len(path)], step) }

// keys returns the keys of a map in the order of the file, and then those that
// were added since, sorted.
func (m metadata) keys(of map[string]any, at string) []string {
	recorded, _ := m.order[at].([]any)
	keys, seen := make([]string, 0, len(of)), make(map[string]bool, len(of))
	for _, r := range recorded {
		k := word(r)
		if _, ok := of[k]; ok && !seen[k] {
			keys, seen[k] = append(keys, k), true
		}
	}
	known := len(keys)
	for k := range of {
		if !seen[k] {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys[known:])
	return keys
}

func (w *walk) leaf(v any, path, place []string) (any, error) {
	encrypted := w.metadata.encrypts(path)
	if encrypted {
		text, ok := v.(string)
		if !ok {
			return nil, atField(place, "is not encrypted, although the block %q says so", manifest.EncryptedBlock)
		}
		plain, comment, err := w.open(text, path, place)
		if err != nil {
			return nil, err
		}
		if comment {
			return v, nil // an encrypted comment of a list, which only SOPS itself reads
		}
		if text != "" {
			w.leaves = append(w.leaves, Leaf{Path: place, Value: plain})
		}
		v = plain
	} else if text, _ := v.(string); manifest.Ciphertext(text) {
		return nil, atField(place, "is encrypted, and the block %q says that it is not", manifest.EncryptedBlock)
	}
	if !w.metadata.macOnlyEncrypted || encrypted {
		w.mac = append(w.mac, bytesOf(v)...)
	}
	return v, nil
}

// encrypts reports whether the values of a path are encrypted.
func (m metadata) encrypts(path []string) bool {
	in := func(fits func(string) bool) bool {
		for _, p := range path {
			if fits(p) {
				return true
			}
		}
		return false
	}
	yes := m.unencryptedSuffix == "" || !in(func(p string) bool { return strings.HasSuffix(p, m.unencryptedSuffix) })
	if m.encryptedSuffix != "" {
		yes = in(func(p string) bool { return strings.HasSuffix(p, m.encryptedSuffix) })
	}
	if m.unencryptedPattern != nil && in(m.unencryptedPattern.MatchString) {
		yes = false
	}
	if m.encryptedPattern != nil {
		yes = in(m.encryptedPattern.MatchString)
	}
	return yes
}

var envelope = regexp.MustCompile(`^ENC\[AES256_GCM,data:([A-Za-z0-9+/=]+),iv:([A-Za-z0-9+/=]+),tag:([A-Za-z0-9+/=]+),type:([a-z]+)\]$`)

// open decrypts one value. The path is authenticated with it.
func (w *walk) open(text string, path, place []string) (v any, comment bool, err error) {
	if text == "" {
		return "", false, nil // SOPS leaves empty text as it is
	}
	plain, kind, err := decryptText(text, w.key, strings.Join(path, ":")+":")
	if err != nil {
		return nil, false, atField(place, "%s", fault.Sentence(err))
	}
	v, err = typed(plain, kind)
	if err != nil {
		return nil, false, atField(place, "%s", fault.Sentence(err))
	}
	return v, kind == "comment", nil
}

// decryptText opens one envelope under additional data.
func decryptText(text string, key []byte, additional string) (plain []byte, kind string, err error) {
	m := envelope.FindStringSubmatch(text)
	if m == nil {
		return nil, "", fault.New(fault.Invalid, "is not an encrypted value of SOPS")
	}
	var parts [3][]byte
	for i := range parts {
		if parts[i], err = base64.StdEncoding.DecodeString(m[i+1]); err != nil {
			return nil, "", fault.New(fault.Invalid, "is not an encrypted value of SOPS")
		}
	}
	data, iv, tag := parts[0], parts[1], parts[2]
	const shortest, longest = 12, 64
	if len(iv) < shortest || len(iv) > longest || len(tag) != aes.BlockSize {
		return nil, "", fault.New(fault.Invalid, "is not an encrypted value of SOPS")
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, "", err
	}
	gcm, err := cipher.NewGCMWithNonceSize(block, len(iv))
	if err != nil {
		return nil, "", err
	}
	plain, err = gcm.Open(nil, iv, append(data, tag...), []byte(additional))
	if err != nil {
		return nil, "", fault.New(fault.Invalid, "does not decrypt: it was changed, or moved from another field or file")
	}
	return plain, m[4], nil
}

// typed converts decrypted text to its type.
func typed(plain []byte, kind string) (any, error) {
	text := string(plain)
	switch kind {
	case "str", "bytes", "comment", "time":
		return text, nil
	case "int":
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n, nil
		}
	case "float":
		if f, err := strconv.ParseFloat(text, 64); err == nil {
			return f, nil
		}
	case "bool":
		if b, err := strconv.ParseBool(strings.ToLower(text)); err == nil {
			return b, nil
		}
	}
	return nil, fault.New(fault.Invalid, "is encrypted with a type that agents do not know")
}

// bytesOf is how a value is written for the message authentication code.
func bytesOf(v any) []byte {
	switch v := v.(type) {
	case string:
		return []byte(v)
	case int64:
		return strconv.AppendInt(nil, v, 10)
	case float64:
		return strconv.AppendFloat(nil, v, 'f', -1, 64)
	case bool:
		if v {
			return []byte("True")
		}
		return []byte("False")
	}
	return nil
}

// verify compares the message authentication code of the block with that of
// the decrypted values.
func (w *walk) verify() error {
	want, _, err := decryptText(w.metadata.mac, w.key, w.metadata.modified)
	sum := sha512.Sum512(w.mac)
	if err == nil && subtle.ConstantTimeCompare(want, []byte(strings.ToUpper(hex.EncodeToString(sum[:])))) == 1 {
		return nil
	}
	return fault.With(fault.New(fault.Invalid, "it was changed after it was encrypted: its message authentication code does not fit"), "",
		"keep one object per encrypted file, encrypt it again, or encrypt it with --mac-only-encrypted if Kustomize changes it")
}

func atField(place []string, format string, args ...any) error {
	err := fault.New(fault.Invalid, format, args...)
	return fault.New(fault.Invalid, "%s %s", strings.Join(place, "."), err.Error())
}
