package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/shared/version"
)

// The part of SPDX 2.3 that is written.
type (
	document struct {
		SPDXVersion   string         `json:"spdxVersion"`
		DataLicense   string         `json:"dataLicense"`
		ID            string         `json:"SPDXID"`
		Name          string         `json:"name"`
		Namespace     string         `json:"documentNamespace"`
		Creation      creation       `json:"creationInfo"`
		Packages      []element      `json:"packages"`
		Relationships []relationship `json:"relationships"`
	}
	creation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	element struct {
		ID        string     `json:"SPDXID"`
		Name      string     `json:"name"`
		Version   string     `json:"versionInfo,omitempty"`
		Location  string     `json:"downloadLocation"`
		Analyzed  bool       `json:"filesAnalyzed"`
		Licence   string     `json:"licenseDeclared"`
		Concluded string     `json:"licenseConcluded"`
		Copyright string     `json:"copyrightText"`
		Checksums []checksum `json:"checksums,omitempty"`
		Refs      []external `json:"externalRefs,omitempty"`
	}
	checksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	external struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	relationship struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

const unknown = "NOASSERTION"

// bill lists the modules of a binary as it says itself, and the commit that
// it was built from.
func bill(binary, name string, created time.Time) (text []byte, revision string, err error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, "", fmt.Errorf("read what %s was built from: %w", name, err)
	}
	raw, err := os.ReadFile(binary)
	if err != nil {
		return nil, "", err
	}
	sum := sha256.Sum256(raw)
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			revision = s.Value
		}
	}
	product := module("SPDXRef-Product", info.Main)
	product.Name, product.Version, product.Licence, product.Refs = name, version.Number, "Apache-2.0", nil
	product.Checksums = []checksum{{"SHA256", hex.EncodeToString(sum[:])}}
	toolchain := element{
		ID: "SPDXRef-Go", Name: "go", Version: strings.TrimPrefix(info.GoVersion, "go"), Location: "https://go.dev/dl", Licence: "BSD-3-Clause", Concluded: unknown, Copyright: unknown,
		Refs: []external{{"PACKAGE-MANAGER", "purl", "pkg:golang/stdlib@" + strings.TrimPrefix(info.GoVersion, "go")}},
	}
	d := document{
		SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: name,
		Namespace:     "https://github.com/capstan-cd/capstan/spdx/" + name + "/" + hex.EncodeToString(sum[:]),
		Creation:      creation{created.UTC().Format(time.RFC3339), []string{"Tool: capstan-integration-image"}},
		Packages:      []element{product, toolchain},
		Relationships: []relationship{{"SPDXRef-DOCUMENT", "DESCRIBES", product.ID}, {product.ID, "DEPENDS_ON", toolchain.ID}},
	}
	for i, dep := range info.Deps {
		e := module(fmt.Sprintf("SPDXRef-Module-%d", i+1), *dep)
		d.Packages = append(d.Packages, e)
		d.Relationships = append(d.Relationships, relationship{product.ID, "DEPENDS_ON", e.ID})
	}
	text, err = json.MarshalIndent(d, "", " ")
	return append(text, '\n'), revision, err
}

func module(id string, m debug.Module) element {
	if m.Replace != nil {
		m = *m.Replace
	}
	e := element{
		ID: id, Name: m.Path, Version: m.Version, Location: unknown, Licence: unknown, Concluded: unknown, Copyright: unknown,
		Refs: []external{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + m.Path + "@" + m.Version}},
	}
	if hash, ok := strings.CutPrefix(m.Sum, "h1:"); ok {
		if raw, err := base64.StdEncoding.DecodeString(hash); err == nil {
			e.Checksums = []checksum{{"SHA256", hex.EncodeToString(raw)}}
		}
	}
	return e
}
