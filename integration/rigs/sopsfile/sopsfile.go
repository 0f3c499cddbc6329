// Package sopsfile writes files in the published format of SOPS, encrypted for
// age recipients: AES-GCM for each value with its path as additional data, and
// a SHA-512 over the values. It shares no code with the agent, which reads them.
package sopsfile

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"filippo.io/age"
	"filippo.io/age/armor"
	"go.yaml.in/yaml/v3"
)

// An Encryptor writes files.
type Encryptor struct {
	Recipients []age.Recipient
	Only       bool                       // the code covers only encrypted values
	Encrypts   func(path []string) bool   // nil: data and stringData
	Block      func(block map[string]any) // changes the block; nil: nothing
}

// Encrypt encrypts one YAML document.
func (e Encryptor) Encrypt(t testing.TB, text string) string {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		t.Fatal(err)
	}
	hash := sha512.New()
	if e.Only {
		seed := sha256.Sum256([]byte("sops"))
		hash.Write(seed[:])
	}
	e.walk(t, doc.Content[0], nil, key, hash)
	const modified = "2026-05-04T03:02:01Z"
	block := map[string]any{
		"age":          []any{map[string]any{"recipient": "age1", "enc": e.wrap(t, key)}},
		"lastmodified": modified, "version": "3.9.0", "encrypted_regex": "^(data|stringData)$",
		"mac": seal(t, strings.ToUpper(hex.EncodeToString(hash.Sum(nil))), "str", key, modified),
	}
	if e.Only {
		block["mac_only_encrypted"] = true
	}
	if e.Block != nil {
		e.Block(block)
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	if err := enc.Encode(&doc); err != nil {
		t.Fatal(err)
	}
	if err := yaml.NewEncoder(&out).Encode(map[string]any{"sops": block}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func (e Encryptor) wrap(t testing.TB, key []byte) string {
	t.Helper()
	var out bytes.Buffer
	a := armor.NewWriter(&out)
	w, err := age.Encrypt(a, e.Recipients...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(key); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func (e Encryptor) walk(t testing.TB, n *yaml.Node, path []string, key []byte, mac io.Writer) {
	t.Helper()
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			e.walk(t, n.Content[i+1], append(path[:len(path):len(path)], n.Content[i].Value), key, mac)
		}
		return
	case yaml.SequenceNode:
		for _, c := range n.Content {
			e.walk(t, c, path, key, mac)
		}
		return
	}
	kind, plain := "str", n.Value
	switch n.Tag {
	case "!!int":
		kind = "int"
	case "!!float":
		kind = "float"
	case "!!bool":
		b, _ := strconv.ParseBool(n.Value)
		kind, plain = "bool", map[bool]string{true: "True", false: "False"}[b]
	case "!!null":
		return
	}
	yes := e.Encrypts
	if yes == nil {
		yes = func(path []string) bool { return path[0] == "data" || path[0] == "stringData" }
	}
	if !e.Only || yes(path) {
		fmt.Fprint(mac, plain)
	}
	if yes(path) && plain != "" {
		*n = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: seal(t, plain, kind, key, strings.Join(path, ":")+":")}
	}
}

func seal(t testing.TB, plain, kind string, key []byte, additional string) string {
	t.Helper()
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	iv := make([]byte, 32)
	if _, err := rand.Read(iv); err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCMWithNonceSize(block, len(iv))
	if err != nil {
		t.Fatal(err)
	}
	out := gcm.Seal(nil, iv, []byte(plain), []byte(additional))
	b := base64.StdEncoding.EncodeToString
	end := len(out) - gcm.Overhead()
	return fmt.Sprintf("ENC[AES256_GCM,data:%s,iv:%s,tag:%s,type:%s]", b(out[:end]), b(iv), b(out[end:]), kind)
}
