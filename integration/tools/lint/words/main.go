// Command words finds identifiers that are not in the terms of the field. The
// list has words that this code once used for terms that Kubernetes, Go and
// Argo CD have names for, with what to write instead. Words of the list without
// a plain meaning here are also refused in comments and in strings. It reads
// the Go sources alone, without generated code; "make lint" fails where it
// finds a word.
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// instead has each word that no identifier may contain, and what stands for it.
var instead = map[string]string{
	"bookmark": "cursor", "breath": "batch delay", "bury": "diff tombstones", "calm": "grace period, quiet", "contend": "conflict", "crumb": "small batch",
	"crumbs": "small batches", "culprit": "cause", "culprits": "causes", "cede": "release", "door": "decision", "engrave": "split tombstones",
	"farewell": "await deletion, drain", "gatherer": "batcher", "glance": "local diff", "grave": "tombstone", "graves": "tombstones",
	"hint": "notify", "hints": "notify", "inlet": "listener", "judge": "decide, check, assess", "lean": "server mux", "learnt": "memory",
	"look": "a verb that says what is done: resolve, observe, refresh", "looked": "refreshed, checked", "looks": "lookups, reads", "news": "rows, update",
	"outer": "proxy, parent", "owed": "due", "patience": "timeout, wait limit", "penance": "penalty", "placement": "agent home", "plot": "tombstone key",
	"rendition": "rendered by", "restless": "should reattach", "said": "text, message", "shrinker": "buffer trimmer", "sight": "live view, observation",
	"sighting": "heartbeat", "sights": "live views", "situation": "input", "stint": "slot lease", "stints": "slot leases", "stone": "tombstone", "stones": "tombstones",
	"stray": "orphan", "strays": "orphans", "surroundings": "write context", "tell": "report, send, log", "tells": "shows", "thrift": "gc tuner",
	"tired": "limit exceeded", "told": "reported, sent", "verdict": "decision, result", "warmest": "most recently used", "wayout": "burst gate",
	"weather": "network faults",
}

// nowhere are the words of the list that have no plain meaning in this code, so
// that no comment and no string may contain them either.
var nowhere = []string{
	"bury", "calm", "cede", "contend", "crumb", "crumbs", "culprit", "culprits", "engrave", "farewell", "gatherer", "glance", "grave", "graves",
	"inlet", "learnt", "penance", "rendition", "restless", "shrinker", "sighting", "stint", "stints", "stone", "stones", "thrift", "warmest", "wayout",
}

// terms are identifiers of others, which have a word of the list in them.
var terms = map[string]string{
	"Hint": "a method of the replica service: names on the wire stay",
}

func main() {
	root := flag.String("root", ".", "the checkout to read")
	flag.Parse()
	found, err := search(*root, []string{"agent", "cli", "hub", "shared", "integration"})
	if err != nil {
		fmt.Fprintln(os.Stderr, "words:", err)
		os.Exit(1)
	}
	if report(os.Stderr, found) > 0 {
		os.Exit(1)
	}
}

// A use is an identifier, a comment or a string with a word that has a better
// one. Of a comment or a string the name is the line with the word.
type use struct{ at, name, word string }

func report(out io.Writer, found []use) int {
	for _, u := range found {
		fmt.Fprintf(out, "%s: %s: instead of %q write: %s\n", u.at, u.name, u.word, instead[u.word])
	}
	return len(found)
}

func search(root string, folders []string) ([]use, error) {
	var found []use
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			if strings.HasSuffix(filepath.ToSlash(filepath.Dir(path)), "integration/tools/lint/words") {
				return nil // the list itself
			}
			uses, err := read(path)
			found = append(found, uses...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// read returns the uses of one file; of a generated one, none. A name is
// reported where it is declared, once a file; a comment or a string at each
// line.
func read(path string) ([]use, error) {
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, path, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(tree) {
		return nil, nil
	}
	names := map[string]use{}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.SelectorExpr: // declared elsewhere
			ast.Inspect(x.X, func(n ast.Node) bool { note(files, names, n); return true })
			return false
		case *ast.BasicLit:
			if x.Kind == token.STRING && strings.Contains(x.Value, " ") { // a sentence, not a name
				noteText(files, names, x.Pos(), x.Value)
			}
		default:
			note(files, names, n)
		}
		return true
	})
	for _, group := range tree.Comments {
		for _, c := range group.List {
			noteText(files, names, c.Pos(), c.Text)
		}
	}
	return slices.SortedFunc(maps.Values(names), func(a, b use) int { return strings.Compare(a.at, b.at) }), nil
}

// noteText notes the lines of a comment or a string with a word that may stand
// nowhere.
func noteText(files *token.FileSet, names map[string]use, pos token.Pos, text string) {
	at := files.Position(pos)
	for line := range strings.Lines(text) {
		for _, word := range strings.FieldsFunc(strings.ToLower(line), func(r rune) bool { return !unicode.IsLetter(r) }) {
			if slices.Contains(nowhere, word) {
				where := fmt.Sprintf("%s:%d", at.Filename, at.Line)
				names[where] = use{where, strings.TrimSpace(line), word}
			}
		}
		at.Line++
	}
}

func note(files *token.FileSet, names map[string]use, n ast.Node) {
	id, ok := n.(*ast.Ident)
	if !ok || terms[id.Name] != "" || names[id.Name] != (use{}) {
		return
	}
	for _, word := range split(id.Name) {
		if instead[word] != "" {
			names[id.Name] = use{files.Position(id.Pos()).String(), id.Name, word}
		}
	}
}

// split returns the words of a name in camel case, in small letters.
func split(name string) []string {
	var words []string
	begin, letters := 0, []rune(name)
	for i := 1; i <= len(letters); i++ {
		end := i == len(letters) || letters[i] == '_' ||
			unicode.IsUpper(letters[i]) && (unicode.IsLower(letters[i-1]) || i+1 < len(letters) && unicode.IsLower(letters[i+1]))
		if end {
			words = append(words, strings.ToLower(strings.Trim(string(letters[begin:i]), "_0123456789")))
			begin = i
		}
	}
	return words
}
