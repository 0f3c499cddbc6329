package appset

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	sigs "sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/cli/files"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	maxDownload  = 10 << 20 // bytes of a file by URL
	downloadTime = 60 * time.Second
)

// read returns the ApplicationSets of a file, a folder, standard input or a URL.
func (c commands) read(ctx context.Context, from, namespace string) ([]apimodel.ApplicationSet, error) {
	var in files.Input
	var err error
	if isURL(from) {
		in, err = download(ctx, from)
	} else {
		in, err = files.Read([]string{from}, c.In)
	}
	if err != nil {
		return nil, err
	}
	var out []apimodel.ApplicationSet
	for _, part := range in.Parts {
		sets, err := parse(part)
		if err != nil {
			return nil, err
		}
		out = append(out, sets...)
	}
	if len(out) == 0 {
		return nil, fault.New(fault.Invalid, "%s has no ApplicationSet", from)
	}
	for i := range out {
		if out[i].Metadata.Namespace == "" {
			out[i].Metadata.Namespace = namespace
		}
	}
	return out, nil
}

func isURL(name string) bool {
	return strings.HasPrefix(name, "https://") || strings.HasPrefix(name, "http://")
}

// download reads a file by its URL, without any credential.
func download(ctx context.Context, address string) (files.Input, error) {
	ctx, cancel := context.WithTimeout(ctx, downloadTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return files.Input{}, fault.New(fault.Invalid, "the address of the file is no URL")
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return files.Input{}, fault.Wrap(fault.Offline, err, "%s cannot be read", r.URL.Redacted())
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return files.Input{}, fault.New(fault.Invalid, "%s cannot be read: the server answers %s", r.URL.Redacted(), res.Status)
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, maxDownload+1))
	if err != nil {
		return files.Input{}, fault.Wrap(fault.Offline, err, "%s cannot be read", r.URL.Redacted())
	}
	if len(text) > maxDownload {
		return files.Input{}, fault.New(fault.Invalid, "%s is larger than 10 MiB", r.URL.Redacted())
	}
	return files.Input{Parts: []files.Part{{Name: r.URL.Redacted(), Text: text}}}, nil
}

// parse reads the documents of a file. All of them are ApplicationSets.
func parse(part files.Part) ([]apimodel.ApplicationSet, error) {
	var out []apimodel.ApplicationSet
	decoder := yaml.NewDecoder(bytes.NewReader(part.Text))
	for n := 1; ; n++ {
		var node yaml.Node
		if err := decoder.Decode(&node); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, fault.New(fault.Invalid, "%s, document %d: it is not YAML", part.Name, n)
		}
		sets, err := decode(&node)
		if err != nil {
			return nil, fault.New(fault.Invalid, "%s, document %d: %s", part.Name, n, err)
		}
		out = append(out, sets...)
	}
}

// decode reads one document: a set, a list of sets, or nothing.
func decode(node *yaml.Node) ([]apimodel.ApplicationSet, error) {
	text, err := yaml.Marshal(node)
	if err != nil {
		return nil, errors.New("it cannot be read")
	}
	asJSON, err := sigs.YAMLToJSON(text)
	if err != nil {
		return nil, errors.New("it cannot be read")
	}
	if bytes.Equal(bytes.TrimSpace(asJSON), []byte("null")) {
		return nil, nil
	}
	var list struct {
		Kind  string                    `json:"kind"`
		Items []apimodel.ApplicationSet `json:"items"`
	}
	if json.Unmarshal(asJSON, &list) == nil && strings.HasSuffix(list.Kind, "List") {
		return checked(list.Items...)
	}
	var one apimodel.ApplicationSet
	if json.Unmarshal(asJSON, &one) != nil {
		return nil, errors.New("it is no object")
	}
	return checked(one)
}

// checked returns what people write of sets.
func checked(sets ...apimodel.ApplicationSet) ([]apimodel.ApplicationSet, error) {
	for i, s := range sets {
		if s.Kind != "ApplicationSet" {
			return nil, fmt.Errorf("it is a %q, and no ApplicationSet", s.Kind)
		}
		if s.Metadata.Name == "" {
			return nil, errors.New("it has no metadata.name")
		}
		sets[i] = given(s)
	}
	return sets, nil
}
