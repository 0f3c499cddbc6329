package diff

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/capstan-cd/capstan/shared/manifest"
)

// setOf rebuilds the library's set from our tree.
func setOf(tree *field) (*fieldpath.Set, error) {
	set := fieldpath.NewSet()
	var failed error
	tree.leaves(nil, func(p path) {
		q := make(fieldpath.Path, 0, len(p))
		for _, e := range p {
			text := string(e.kind) + ":" + e.name
			if e.kind == 'i' {
				text = fmt.Sprintf("i:%d", e.index)
			}
			pe, err := fieldpath.DeserializePathElement(text)
			if err != nil {
				failed = err
				return
			}
			q = append(q, pe)
		}
		set.Insert(q)
	})
	return set, failed
}

func drawSet(t *rapid.T) *fieldpath.Set {
	name := rapid.SampledFrom([]string{"spec", "a.b/c", `quo"te`, "é", "", "x y"})
	element := rapid.OneOf(
		rapid.Map(name, func(s string) fieldpath.PathElement { return fieldpath.PathElement{FieldName: &s} }),
		rapid.Map(rapid.IntRange(0, 3), func(i int) fieldpath.PathElement { return fieldpath.PathElement{Index: &i} }),
		rapid.Custom(func(t *rapid.T) fieldpath.PathElement {
			v := value.NewValueInterface(rapid.OneOf(rapid.Just[any]("s"), rapid.Just[any](int64(7)), rapid.Just[any](true), rapid.Just[any](1.5), rapid.Just[any](nil)).Draw(t, "value"))
			return fieldpath.PathElement{Value: &v}
		}),
		rapid.Custom(func(t *rapid.T) fieldpath.PathElement {
			list := value.FieldList{{Name: "name", Value: value.NewValueInterface(name.Draw(t, "key"))}}
			if rapid.Bool().Draw(t, "two") {
				list = append(list, value.Field{Name: "port", Value: value.NewValueInterface(rapid.Int64Range(1, 3).Draw(t, "port"))})
			}
			list.Sort()
			return fieldpath.PathElement{Key: &list}
		}),
	)
	set := fieldpath.NewSet()
	for range rapid.IntRange(0, 12).Draw(t, "paths") {
		set.Insert(rapid.SliceOfN(element, 1, 4).Draw(t, "path"))
	}
	return set
}

func TestFieldsAreReadAsTheAPIServerMeansThem(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		set := drawSet(t)
		text, err := set.ToJSON()
		if err != nil {
			t.Fatal(err)
		}
		tree, err := parseFields(text)
		if err != nil {
			t.Fatalf("parseFields(%s): %v", text, err)
		}
		got, err := setOf(tree)
		if err != nil {
			t.Fatal(err)
		}
		if !got.Equals(set) {
			t.Fatalf("%s\nread as %s\nwant    %s", text, got, set)
		}
	})
}

func FuzzFields(f *testing.F) {
	f.Add([]byte(`{"f:a":{".":{},"k:{\"name\":\"x\"}":{"f:b":{}},"v:1":{},"i:0":{}}}`))
	f.Add([]byte(`{"f:\u00e9":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tree, err := parseFields(data)
		if err != nil {
			return
		}
		set := fieldpath.NewSet()
		if set.FromJSON(bytes.NewReader(data)) != nil {
			return
		}
		if got, err := setOf(tree); err == nil && !got.Equals(set) && !bytes.Contains(data, []byte(`".":`)) {
			t.Fatalf("%s\nread as %s\nwant    %s", data, got, set)
		}
	})
}

// TestOwnershipProperty changes single values of random objects: a change is
// seen exactly where the record owns the value, whatever else is there.
func TestOwnershipProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		object := map[string]any{"apiVersion": "v1", "kind": "X", "spec": drawMap(t, 3)}
		o := &manifest.Object{Object: object}
		all, err := parseFields(fieldsOf(o))
		if err != nil {
			t.Fatal(err)
		}
		owned := fieldpath.NewSet()
		ours := map[string]bool{}
		places := slices.DeleteFunc(placesOf(all, object), func(p []any) bool {
			return p[len(p)-1] == "name" // changing a key makes another item
		})
		if len(places) == 0 {
			t.Skip()
		}
		for _, place := range places {
			if rapid.Bool().Draw(t, "ours") {
				p, err := locate(all, object, place)
				if err != nil {
					t.Fatal(err)
				}
				ours[p.String()] = true
				owned.Insert(library(t, p))
			}
		}
		text, err := owned.ToJSON()
		if err != nil {
			t.Fatal(err)
		}
		rec, err := Comparer{}.record(o, "m", [32]byte{}, text, nil)
		if err != nil {
			t.Fatal(err)
		}
		place := rapid.SampledFrom(places).Draw(t, "place")
		p, err := locate(all, object, place)
		if err != nil {
			t.Fatal(err)
		}
		changed, ok := replaceAt(object, place, "another value").(map[string]any)
		if !ok {
			t.Fatal("not a map")
		}
		v, err := rec.Compare(&manifest.Object{Object: changed}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if v.Equal == ours[p.String()] {
			t.Fatalf("%s changed, ours is %v, verdict %+v", p, ours, v)
		}
		if !v.Equal && (len(v.Fields) != 1 || v.Fields[0] != p.String()) {
			t.Fatalf("%s changed, verdict %+v", p, v)
		}
	})
}

func library(t *rapid.T, p path) fieldpath.Path {
	var out fieldpath.Path
	for _, e := range p {
		pe, err := fieldpath.DeserializePathElement(string(e.kind) + ":" + e.name)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, pe)
	}
	return out
}

func drawMap(t *rapid.T, depth int) map[string]any {
	out := map[string]any{}
	for range rapid.IntRange(1, 4).Draw(t, "fields") {
		k := rapid.SampledFrom([]string{"a", "b", "c.d", "e/f"}).Draw(t, "field")
		switch {
		case depth > 0 && rapid.Bool().Draw(t, "map"):
			out[k] = drawMap(t, depth-1)
		case depth > 0 && rapid.Bool().Draw(t, "list"):
			var items []any
			for i := range rapid.IntRange(0, 3).Draw(t, "items") {
				item := drawMap(t, depth-1)
				item["name"] = fmt.Sprint("n", i)
				items = append(items, item)
			}
			out[k] = items
		default:
			out[k] = rapid.Int64Range(0, 3).Draw(t, "value")
		}
	}
	return out
}
