package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"

	"github.com/capstan-cd/capstan/hub/api/fields"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A writtenList is a page as it is sent, with its version.
type writtenList struct {
	text []byte
	tag  string
}

// VisitListApplicationsResponse writes it.
func (l writtenList) VisitListApplicationsResponse(w http.ResponseWriter) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("ETag", l.tag)
	w.WriteHeader(http.StatusOK)
	_, err := w.Write(l.text)
	return err
}

// sparse answers with the fields that are asked for. Its ETag is that of what
// is answered, but for where the stream stands.
func sparse(l apimodel.ApplicationList, asked, held string) (gen.ListApplicationsResponseObject, error) {
	fields, unknown, ok := fields.Parse(asked)
	if !ok {
		return nil, fault.With(fault.New(fault.Invalid, "the parameter fields names %q, which lists do not have", cut(unknown)), "",
			"write paths from the top, such as items.metadata.name,items.status.health")
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
	shown := fields.From(page)
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
	out := writtenList{text: text, tag: `"` + hex.EncodeToString(sum[:16]) + `"`}
	if held == out.tag {
		return gen.ListApplications304Response{}, nil
	}
	return out, nil
}
