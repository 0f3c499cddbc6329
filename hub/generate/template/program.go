package template

import (
	"maps"
	"regexp"
	"slices"
	"text/template"
	"text/template/parse"

	"github.com/capstan-cd/capstan/shared/fault"
)

// stepFunction is called in each round of a loop and in each call of a named
// template.
const stepFunction = "capstanStep"

// changing are functions that change what they are given.
var changing = regexp.MustCompile(`\b(set|unset|merge|mergeOverwrite|mustMerge|mustMergeOverwrite)\b`)

// read parses a Go template and puts steps in its loops. Named templates must
// not call one another in circles.
func read(base *template.Template, text string, options []string) (*program, error) {
	if len(text) > maxText {
		return nil, fault.New(fault.Exceeded, "a template has %d bytes, and may have %d", len(text), maxText)
	}
	if deepest(text, '(', ')') > maxDepth {
		return nil, fault.New(fault.Exceeded, "a template has parentheses that are nested more than %d deep", maxDepth)
	}
	tree, err := base.Clone()
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "a template cannot be read")
	}
	if tree, err = tree.Option(options...).Parse(text); err != nil {
		return nil, fault.New(fault.Invalid, "the template %q cannot be read: %s", shorten(text), cause(err))
	}
	w := walker{calls: map[string][]string{}}
	for _, named := range tree.Templates() {
		if named.Tree != nil && named.Root != nil {
			w.name = named.Name()
			if err := w.list(named.Root, 0); err != nil {
				return nil, err
			}
			named.Root.Nodes = slices.Insert(named.Root.Nodes, 0, stepNode(named.Root.Pos))
		}
	}
	if err := w.checkCalls(); err != nil {
		return nil, err
	}
	return &program{tree: tree, changes: changing.MatchString(text)}, nil
}

// deepest is how deep brackets of a text are nested.
func deepest(text string, open, closing byte) int {
	now, most := 0, 0
	for i := range len(text) {
		switch text[i] {
		case open:
			now++
			most = max(most, now)
		case closing:
			now = max(0, now-1)
		}
	}
	return most
}

// A walker instruments the trees of one text.
type walker struct {
	name  string              // of the template that is walked
	calls map[string][]string // templates by their callers
}

func (w *walker) list(list *parse.ListNode, depth int) error {
	if list == nil {
		return nil
	}
	if depth > maxDepth {
		return fault.New(fault.Exceeded, "a template is nested more than %d deep", maxDepth)
	}
	for _, node := range list.Nodes {
		var branch *parse.BranchNode
		switch n := node.(type) {
		case *parse.IfNode:
			branch = &n.BranchNode
		case *parse.WithNode:
			branch = &n.BranchNode
		case *parse.RangeNode:
			branch = &n.BranchNode
		case *parse.TemplateNode:
			w.calls[w.name] = append(w.calls[w.name], n.Name)
			continue
		default:
			continue
		}
		for _, inner := range []*parse.ListNode{branch.List, branch.ElseList} {
			if err := w.list(inner, depth+1); err != nil {
				return err
			}
		}
		if branch.NodeType == parse.NodeRange {
			branch.List.Nodes = slices.Insert(branch.List.Nodes, 0, stepNode(branch.Pos))
		}
	}
	return nil
}

// stepNode is {{step}}.
func stepNode(at parse.Pos) parse.Node {
	call := &parse.CommandNode{NodeType: parse.NodeCommand, Pos: at, Args: []parse.Node{parse.NewIdentifier(stepFunction).SetPos(at)}}
	pipe := &parse.PipeNode{NodeType: parse.NodePipe, Pos: at, Cmds: []*parse.CommandNode{call}}
	return &parse.ActionNode{NodeType: parse.NodeAction, Pos: at, Pipe: pipe}
}

// checkCalls refuses templates that call themselves, directly or through others.
func (w *walker) checkCalls() error {
	done := map[string]bool{}
	var visit func(name string, open []string) error
	visit = func(name string, open []string) error {
		if slices.Contains(open, name) || len(open) > maxDepth {
			return fault.New(fault.Invalid, "the template %q calls itself", shorten(name))
		}
		if done[name] {
			return nil
		}
		for _, called := range w.calls[name] {
			if err := visit(called, append(open, name)); err != nil {
				return err
			}
		}
		done[name] = true
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(w.calls)) {
		if err := visit(name, nil); err != nil {
			return err
		}
	}
	return nil
}
