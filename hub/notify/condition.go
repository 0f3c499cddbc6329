package notify

import (
	"crypto/sha1" //nolint:gosec // the hash names a condition as Argo CD's annotation does, and protects nothing
	"encoding/base64"
	"fmt"
	"slices"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/vm"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/shared/fault"
)

// Limits of the expressions of triggers.
const (
	maxConditions = 50 // of a trigger
	maxExpression = 8 << 10
	maxNodes      = 600
	// maxLoops is how many functions with a predicate, such as any, an
	// expression may have: each is a loop over a list, and two in each other
	// multiply.
	maxLoops = 2
	// maxMemory is what an expression may allocate, in the units of the library.
	maxMemory = 200_000
	maxOnce   = 512 // bytes of a value of oncePer
)

// A Trigger is a list of conditions.
type Trigger []Condition

// A Condition says when which templates are sent.
type Condition struct {
	When        string   `json:"when"`
	Send        []string `json:"send"`
	OncePer     string   `json:"oncePer,omitempty"`
	Description string   `json:"description,omitempty"`

	when, once *vm.Program
}

// A Result is what a condition says about an application.
type Result struct {
	Key       string // of the condition within its trigger, as Argo CD names it
	Triggered bool
	OncePer   string
	Templates []string
	// Problem says why the condition cannot be evaluated; then it does not hold.
	Problem string
}

// ReadTrigger reads the value of a key trigger.<name>.
func ReadTrigger(name, text string) (Trigger, error) {
	var t Trigger
	if err := decode(text, &t, "a list of when, send, oncePer and description"); err != nil {
		return nil, err
	}
	if len(t) > maxConditions {
		return nil, fault.New(fault.Exceeded, "the trigger %s has %d conditions, and at most %d are possible", name, len(t), maxConditions)
	}
	for i := range t {
		c := &t[i]
		var err error
		when := c.When
		if when == "" {
			when = "false"
		}
		if c.when, err = compile(when); err == nil && c.OncePer != "" {
			c.once, err = compile(c.OncePer)
		}
		if err != nil {
			return nil, fault.With(err, fmt.Sprintf("condition %d", i+1), "")
		}
	}
	return t, nil
}

// Text is the trigger as a value of the ConfigMap.
func (t Trigger) Text() string {
	text, err := yaml.Marshal([]Condition(t))
	if err != nil {
		return ""
	}
	return string(text)
}

// Run evaluates the conditions in their order.
func (t Trigger) Run(vars map[string]any) []Result {
	out := make([]Result, len(t))
	for i, c := range t {
		sum := sha1.Sum([]byte(c.When)) //nolint:gosec // see above
		r := Result{Key: fmt.Sprintf("[%d].%s", i, base64.RawURLEncoding.EncodeToString(sum[:])), Templates: c.Send}
		holds, err := evaluate(c.when, vars)
		if err != nil {
			r.Problem = fault.Sentence(err)
		}
		if r.Triggered, _ = holds.(bool); r.Triggered && c.once != nil {
			value, err := evaluate(c.once, vars)
			if err != nil {
				r.Problem = fault.Sentence(err)
			} else {
				r.OncePer = cut(fmt.Sprint(value), maxOnce)
			}
		}
		out[i] = r
	}
	return out
}

// builtins are the functions of the library that expressions may call. None
// makes a text or a list that is much larger than what it is given.
func builtins() []string {
	return []string{
		"all", "none", "any", "one", "filter", "map", "count", "find", "findIndex", "sum", "len", "lower", "upper", "trim", "trimPrefix", "trimSuffix",
		"hasPrefix", "hasSuffix", "indexOf", "lastIndexOf", "split", "int", "float", "string", "type", "first", "last", "get", "keys", "values", "min", "max",
		"abs", "now", "date", "duration",
	}
}

// methods are what expressions may call of the values that they are given:
// functions of time, strings, sync and repo, and methods of moments.
func methods() []string {
	return []string{
		"Parse", "Now", "Add", "Sub", "Before", "After", "Equal", "IsZero", "Unix", "UTC", "Year", "Month", "Day", "Hour", "Minute", "Second", "Weekday",
		"Hours", "Minutes", "Seconds", "ReplaceAll", "ToUpper", "ToLower", "GetInfoItem", "RepoURLToHTTPS", "FullNameByRepoURL", "QueryEscape",
		"GetCommitMetadata", "GetAppDetails", "Format", "String", "AddDate", "Truncate", "YearDay",
	}
}

func compile(text string) (*vm.Program, error) {
	if len(text) > maxExpression {
		return nil, fault.New(fault.Exceeded, "the expression has %d bytes, and may have %d", len(text), maxExpression)
	}
	limits := &limiter{}
	options := []expr.Option{expr.AllowUndefinedVariables(), expr.DisableAllBuiltins(), expr.MaxNodes(maxNodes)}
	for _, name := range builtins() {
		options = append(options, expr.EnableBuiltin(name))
	}
	program, err := expr.Compile(text, append(options, expr.Patch(limits))...)
	if err == nil {
		err = limits.problem
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, "the expression cannot be read: %w", err)
	}
	return program, nil
}

func evaluate(program *vm.Program, vars map[string]any) (any, error) {
	if program == nil {
		return nil, nil
	}
	machine := vm.VM{MemoryBudget: maxMemory}
	out, err := machine.Run(program, vars)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the expression cannot be evaluated: %w", err)
	}
	return out, nil
}

// A limiter refuses what makes a small expression expensive.
type limiter struct {
	loops   int
	problem error
}

// Visit looks at one node.
func (l *limiter) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.VariableDeclaratorNode:
		l.refuse("let is not possible")
	case *ast.CallNode:
		if !callable(n.Callee) {
			l.refuse("there is no function " + cut(n.Callee.String(), 80))
		}
	case *ast.BinaryNode:
		if n.Operator == ".." {
			l.refuse("ranges are not possible")
		}
	case *ast.PredicateNode:
		if l.loops++; l.loops > maxLoops {
			l.refuse(fmt.Sprintf("more than %d functions over lists are not possible", maxLoops))
		}
	}
}

func callable(callee ast.Node) bool {
	member, ok := callee.(*ast.MemberNode)
	if !ok {
		return false
	}
	name, ok := member.Property.(*ast.StringNode)
	return ok && slices.Contains(methods(), name.Value)
}

func (l *limiter) refuse(message string) {
	if l.problem == nil {
		l.problem = fault.New(fault.Invalid, "%s", message)
	}
}
