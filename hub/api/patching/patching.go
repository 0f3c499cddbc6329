// Package patching applies patches of requests to JSON documents. The API calls
// it; it knows no noun.
package patching

import (
	"bytes"
	"encoding/json"
	"errors"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/fault"
)

// ErrTooLarge means that a patch makes a document too large.
var ErrTooLarge = errors.New("the patched document is too large")

const maxSteps = 100 // operations of one JSON patch

// Merge applies a merge patch (RFC 7396), which must be an object.
func Merge(document, patch []byte) ([]byte, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(patch, &object); err != nil || object == nil {
		return nil, fault.With(fault.New(fault.Invalid, "the patch is no JSON object"), "", "send a merge patch such as {\"spec\":{\"project\":\"shop\"}}")
	}
	out, err := jsonpatch.MergePatch(document, patch)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the patch cannot be applied")
	}
	return out, nil
}

// Steps applies a JSON patch (RFC 6902) to a document. The error is ErrTooLarge
// if the document becomes larger than most bytes.
func Steps(document, patch []byte, most int) ([]byte, error) {
	steps, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, fault.With(fault.New(fault.Invalid, "the patch is no array of JSON patch operations"), "",
			"send one such as [{\"op\":\"replace\",\"path\":\"/spec/project\",\"value\":\"shop\"}], or say patchType merge")
	}
	if len(steps) > maxSteps {
		return nil, fault.With(fault.New(fault.Invalid, "the patch has %d operations, and %d are allowed", len(steps), maxSteps), "", "send several patches")
	}
	// What answers leave out must not be copied to where they show it, nor guessed.
	hidden := !bytes.Equal(repourl.RedactJSON(document), document)
	for i, step := range steps {
		switch kind := step.Kind(); {
		case hidden && (kind == "copy" || kind == "move" || kind == "test"):
			return nil, fault.With(fault.New(fault.Invalid, "operation %d of the patch is %q, and the application holds a value that is not shown", i+1, kind), "",
				"use add, replace and remove")
		case kind != "add" && kind != "remove" && kind != "replace" && kind != "copy" && kind != "move" && kind != "test":
			return nil, fault.With(fault.New(fault.Invalid, "operation %d of the patch is %.80q", i+1, kind), "", "use add, remove, replace, copy, move or test")
		}
		// One at a time: each may double the document.
		if document, err = steps[i : i+1].Apply(document); err != nil {
			return nil, fault.With(fault.Wrap(fault.Invalid, err, "operation %d of the patch cannot be applied", i+1), "", "look at the application as it is now")
		}
		if len(document) > most {
			return nil, ErrTooLarge
		}
	}
	return document, nil
}
