package deeplink

import (
	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/vm"

	"github.com/capstan-cd/capstan/shared/fault"
)

// maxLoops is how many functions with a predicate, such as any, a condition may
// have: each is a loop over a list, and two in each other multiply.
const maxLoops = 1

// maxNodes bounds the size of a condition.
const maxNodes = 300

// A condition is a compiled expression; without a program it always holds.
type condition struct{ program *vm.Program }

// builtins are the functions that conditions may call. None makes a text or a
// list that is larger than what it is given.
func builtins() []string {
	return []string{
		"all", "none", "any", "one", "filter", "count", "find", "len", "lower", "upper", "trim", "trimPrefix", "trimSuffix", "hasPrefix", "hasSuffix", "indexOf",
		"int", "float", "string", "type", "first", "last", "get", "keys", "values",
	}
}

// compileCondition compiles an expression in the language that Argo CD uses.
func compileCondition(text string) (condition, error) {
	if text == "" {
		return condition{}, nil
	}
	guard := &guard{}
	options := []expr.Option{expr.AllowUndefinedVariables(), expr.DisableAllBuiltins(), expr.MaxNodes(maxNodes)}
	for _, name := range builtins() {
		options = append(options, expr.EnableBuiltin(name))
	}
	program, err := expr.Compile(text, append(options, expr.Patch(guard))...)
	if err == nil {
		err = guard.problem
	}
	if err != nil {
		return condition{}, fault.New(fault.Invalid, "its condition cannot be read: %w", err)
	}
	return condition{program}, nil
}

// holds evaluates the condition.
func (c condition) holds(data map[string]any) (bool, error) {
	if c.program == nil {
		return true, nil
	}
	out, err := expr.Run(c.program, data)
	if err != nil {
		return false, fault.New(fault.Invalid, "its condition cannot be evaluated: %w", err)
	}
	holds, ok := out.(bool)
	if !ok {
		return false, fault.New(fault.Invalid, "its condition is no truth value but %T", out)
	}
	return holds, nil
}

// A guard refuses what makes a small expression expensive.
type guard struct {
	loops   int
	problem error
}

// Visit looks at one node.
func (g *guard) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.VariableDeclaratorNode:
		g.refuse("let is not possible")
	case *ast.CallNode:
		g.refuse("there is no function " + shorten(n.Callee.String()))
	case *ast.BinaryNode:
		if n.Operator == ".." {
			g.refuse("ranges are not possible")
		}
	case *ast.PredicateNode:
		if g.loops++; g.loops > maxLoops {
			g.refuse("more than one function over a list is not possible")
		}
	}
}

func (g *guard) refuse(message string) {
	if g.problem == nil {
		g.problem = fault.New(fault.Invalid, "%s", message)
	}
}
