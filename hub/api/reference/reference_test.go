package reference_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/capstan-cd/capstan/hub/api/reference"
)

func TestPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r, err := reference.New(text)
	if err != nil {
		t.Fatal(err)
	}
	page := string(r.Page)
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("API-14(part) the page has every operation and every type of the document", func(t *testing.T) {
		for path, item := range doc.Paths.Map() {
			for method, op := range item.Operations() {
				if !strings.Contains(page, `<article id="`+op.OperationID+`">`) {
					t.Errorf("%s %s is not there", method, path)
				}
			}
		}
		for name := range doc.Components.Schemas {
			if !strings.Contains(page, `<article id="type-`+name+`">`) {
				t.Errorf("the type %s is not there", name)
			}
		}
	})
	t.Run("API-14(part) SEC-H5 it runs no script, has no style of its own and loads nothing from another host", func(t *testing.T) {
		if found := regexp.MustCompile(`(?i)<script|<style|\sstyle=|\son\w+=|(src|href)="(https?:)?//`).FindString(page + string(r.Style)); found != "" {
			t.Errorf("it has %q", found)
		}
		if strings.Contains(string(r.Style), "url(") || strings.Contains(string(r.Style), "@import") {
			t.Error("the style loads something")
		}
	})
	t.Run("every link leads to something on the page or of the hub", func(t *testing.T) {
		for _, m := range regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(page, -1) {
			if !strings.Contains(page, `id="`+m[1]+`"`) {
				t.Errorf("#%s leads nowhere", m[1])
			}
		}
	})
	t.Run("API-14(part) the document as JSON says the same", func(t *testing.T) {
		var got struct{ Paths map[string]any }
		if err := json.Unmarshal(r.JSON, &got); err != nil || len(got.Paths) != doc.Paths.Len() {
			t.Errorf("%d paths, %v", len(got.Paths), err)
		}
	})
	if _, err := reference.New([]byte("openapi: 3.1.0")); err == nil {
		t.Error("a document that is none is shown")
	}
}
