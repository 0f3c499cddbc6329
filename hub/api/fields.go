package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A fieldTree says which fields of a JSON value are meant; an empty one, all of
// what is there.
type fieldTree map[string]fieldTree

// listFields are those of a list and of its items. What is below them depends
// on the application.
func listFields() map[string][]string {
	return map[string][]string{
		"apiVersion": nil, "kind": nil, "cursor": nil, "metadata": nil,
		"items": {"apiVersion", "kind", "metadata", "spec", "operation", "status", "warnings"},
	}
}

// readFields reads the parameter fields: paths with commas between them, and -
// before the first if they are to be left out.
func readFields(text string) (fields fieldTree, leaveOut bool, err error) {
	text, leaveOut = strings.CutPrefix(text, "-")
	fields = fieldTree{}
	for path := range strings.SplitSeq(text, ",") {
		steps := strings.Split(path, ".")
		below, known := listFields()[steps[0]]
		if !known || slices.Contains(steps, "") || len(steps) > 1 && below != nil && !slices.Contains(below, steps[1]) {
			return nil, false, fault.With(fault.New(fault.Invalid, "the parameter fields names %q, which lists do not have", cut(path)), "",
				"write paths from the top, such as items.metadata.name,items.status.health")
		}
		add(fields, steps)
	}
	return fields, leaveOut, nil
}

// add adds a path. A shorter one covers the longer ones.
func add(fields fieldTree, steps []string) {
	for i, step := range steps {
		below, there := fields[step]
		switch {
		case i == len(steps)-1:
			fields[step] = fieldTree{}
			return
		case there && len(below) == 0:
			return
		case !there:
			below = fieldTree{}
			fields[step] = below
		}
		fields = below
	}
}

// keep returns the fields of a value alone.
func (f fieldTree) keep(v any) any {
	if len(f) == 0 {
		return v
	}
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, below := range f {
			if value, there := v[name]; there {
				out[name] = below.keep(value)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = f.keep(v[i])
		}
		return out
	}
	return v
}

// drop takes the fields out of a value.
func (f fieldTree) drop(v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, below := range f {
			if len(below) == 0 {
				delete(v, name)
			} else {
				below.drop(v[name])
			}
		}
	case []any:
		for i := range v {
			f.drop(v[i])
		}
	}
}

// A sparseList is a page with some of its fields.
type sparseList struct {
	text []byte
	tag  string
}

// VisitListApplicationsResponse writes it.
func (l sparseList) VisitListApplicationsResponse(w http.ResponseWriter) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("ETag", l.tag)
	w.WriteHeader(http.StatusOK)
	_, err := w.Write(l.text)
	return err
}

// sparse answers with the fields that are asked for. Its ETag is that of what
// is answered, but for where the stream stands.
func sparse(l apimodel.ApplicationList, asked, held string) (gen.ListApplicationsResponseObject, error) {
	fields, leaveOut, err := readFields(asked)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	var page map[string]any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&page); err != nil {
		return nil, err
	}
	var shown any = page
	if leaveOut {
		fields.drop(page)
	} else {
		shown = fields.keep(page)
	}
	text, err := json.Marshal(shown)
	if err != nil {
		return nil, err
	}
	tagged := text
	if top, ok := shown.(map[string]any); ok {
		delete(top, "cursor")
		if tagged, err = json.Marshal(top); err != nil {
			return nil, err
		}
	}
	sum := sha256.Sum256(tagged)
	out := sparseList{text: text, tag: `"` + hex.EncodeToString(sum[:16]) + `"`}
	if held == out.tag {
		return gen.ListApplications304Response{}, nil
	}
	return out, nil
}
