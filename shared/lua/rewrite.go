package lua

import (
	"github.com/yuin/gopher-lua/ast"

	"github.com/capstan-cd/capstan/shared/fault"
)

// The names of the counted forms of operations that the interpreter does not
// count itself. No script can use them.
const (
	nameConcat = "(concat)"
	nameSet    = "(set)"
	nameKey    = "(key)"
)

// maxNesting is how deep expressions and blocks may nest.
const maxNesting = 1000

// guard rewrites a chunk so that texts are joined, and tables grow by computed
// keys, only through functions that count. They are the first three arguments
// of the chunk, in locals that no script can name or change.
func guard(chunk []ast.Stmt) ([]ast.Stmt, error) {
	w := &rewriter{}
	chunk = w.block(chunk)
	if w.err != nil {
		return nil, w.err
	}
	first := &ast.LocalAssignStmt{Names: []string{nameConcat, nameSet, nameKey}, Exprs: []ast.Expr{&ast.Comma3Expr{}}}
	setLine(first, 1)
	setLine(first.Exprs[0], 1)
	return append([]ast.Stmt{first}, chunk...), nil
}

type rewriter struct {
	depth int
	err   error
}

// down enters the next level if that is allowed; up leaves it.
func (w *rewriter) down() bool {
	w.depth++
	if w.depth > maxNesting && w.err == nil {
		w.err = fault.New(fault.Exceeded, "the script nests deeper than %d levels", maxNesting)
	}
	return w.err == nil
}

func (w *rewriter) up() { w.depth-- }

func (w *rewriter) block(in []ast.Stmt) []ast.Stmt {
	defer w.up()
	if !w.down() {
		return in
	}
	for i := range in {
		in[i] = w.statement(in[i])
	}
	return in
}

func (w *rewriter) statement(s ast.Stmt) ast.Stmt {
	switch s := s.(type) {
	case *ast.AssignStmt:
		return w.assign(s)
	case *ast.LocalAssignStmt:
		w.all(s.Exprs)
	case *ast.FuncCallStmt:
		s.Expr = w.expr(s.Expr)
	case *ast.DoBlockStmt:
		s.Stmts = w.block(s.Stmts)
	case *ast.WhileStmt:
		s.Condition = w.expr(s.Condition)
		s.Stmts = w.block(s.Stmts)
	case *ast.RepeatStmt:
		s.Condition = w.expr(s.Condition)
		s.Stmts = w.block(s.Stmts)
	case *ast.IfStmt:
		s.Condition = w.expr(s.Condition)
		s.Then = w.block(s.Then)
		s.Else = w.block(s.Else)
	case *ast.NumberForStmt:
		s.Init, s.Limit = w.expr(s.Init), w.expr(s.Limit)
		if s.Step != nil {
			s.Step = w.expr(s.Step)
		}
		s.Stmts = w.block(s.Stmts)
	case *ast.GenericForStmt:
		w.all(s.Exprs)
		s.Stmts = w.block(s.Stmts)
	case *ast.FuncDefStmt:
		if s.Name.Func != nil {
			s.Name.Func = w.target(s.Name.Func)
		}
		if s.Name.Receiver != nil {
			s.Name.Receiver = w.expr(s.Name.Receiver)
		}
		s.Func.Stmts = w.block(s.Func.Stmts)
	case *ast.ReturnStmt:
		w.all(s.Exprs)
	}
	return s
}

func (w *rewriter) all(in []ast.Expr) {
	for i := range in {
		in[i] = w.expr(in[i])
	}
}

func (w *rewriter) expr(e ast.Expr) ast.Expr {
	defer w.up()
	if !w.down() {
		return e
	}
	switch e := e.(type) {
	case *ast.StringConcatOpExpr:
		return call(e, nameConcat, w.expr(e.Lhs), w.expr(e.Rhs))
	case *ast.AttrGetExpr:
		e.Object, e.Key = w.expr(e.Object), w.expr(e.Key)
	case *ast.TableExpr:
		for _, f := range e.Fields {
			if f.Key != nil && !fixed(f.Key) {
				f.Key = call(f.Key, nameKey, w.expr(f.Key))
			}
			f.Value = w.expr(f.Value)
		}
	case *ast.FuncCallExpr:
		if e.Func != nil {
			e.Func = w.expr(e.Func)
		}
		if e.Receiver != nil {
			e.Receiver = w.expr(e.Receiver)
		}
		w.all(e.Args)
	case *ast.LogicalOpExpr:
		e.Lhs, e.Rhs = w.expr(e.Lhs), w.expr(e.Rhs)
	case *ast.RelationalOpExpr:
		e.Lhs, e.Rhs = w.expr(e.Lhs), w.expr(e.Rhs)
	case *ast.ArithmeticOpExpr:
		e.Lhs, e.Rhs = w.expr(e.Lhs), w.expr(e.Rhs)
	case *ast.UnaryMinusOpExpr:
		e.Expr = w.expr(e.Expr)
	case *ast.UnaryNotOpExpr:
		e.Expr = w.expr(e.Expr)
	case *ast.UnaryLenOpExpr:
		e.Expr = w.expr(e.Expr)
	case *ast.FunctionExpr:
		e.Stmts = w.block(e.Stmts)
	}
	return e
}

// target rewrites inside the target of an assignment, except its last step.
func (w *rewriter) target(e ast.Expr) ast.Expr {
	if a, ok := e.(*ast.AttrGetExpr); ok {
		a.Object, a.Key = w.expr(a.Object), w.expr(a.Key)
	}
	return e
}

// fixed reports whether a key is a name in the script's text: a table can grow
// only by as many of these as the script has.
func fixed(key ast.Expr) bool {
	_, text := key.(*ast.StringExpr)
	return text
}

// assign turns t[k] = v into a counted call. An assignment to several targets
// becomes a block: first everything is evaluated, then it is assigned one by
// one. (The interpreter's own result for a, b = b, a is wrong.)
func (w *rewriter) assign(s *ast.AssignStmt) ast.Stmt {
	w.all(s.Rhs)
	for i := range s.Lhs {
		s.Lhs[i] = w.target(s.Lhs[i])
	}
	if len(s.Lhs) > 1 {
		return apart(s)
	}
	if a, ok := s.Lhs[0].(*ast.AttrGetExpr); ok && !fixed(a.Key) {
		return setCall(s, a.Object, a.Key, s.Rhs...)
	}
	return s
}

// apart writes an assignment to several targets as a block.
func apart(s *ast.AssignStmt) ast.Stmt {
	places := &ast.LocalAssignStmt{}
	values := &ast.LocalAssignStmt{Exprs: s.Rhs}
	var sets []ast.Stmt
	for i, e := range s.Lhs {
		number := string(rune('0' + i%10))
		for j := i / 10; j > 0; j /= 10 {
			number = string(rune('0'+j%10)) + number
		}
		value := "(value" + number + ")"
		values.Names = append(values.Names, value)
		a, ok := e.(*ast.AttrGetExpr)
		if !ok {
			one := &ast.AssignStmt{Lhs: []ast.Expr{e}, Rhs: []ast.Expr{ident(s, value)}}
			setLine(one, s.Line())
			sets = append(sets, one)
			continue
		}
		table, key := "(table"+number+")", "(key"+number+")"
		places.Names = append(places.Names, table, key)
		places.Exprs = append(places.Exprs, single(a.Object), single(a.Key))
		sets = append(sets, setCall(s, ident(s, table), ident(s, key), ident(s, value)))
	}
	setLine(places, s.Line())
	setLine(values, s.Line())
	first := []ast.Stmt{values}
	if len(places.Names) > 0 {
		first = []ast.Stmt{places, values}
	}
	block := &ast.DoBlockStmt{Stmts: append(first, sets...)}
	setLine(block, s.Line())
	return block
}

// single prevents the last call in a list from returning more than one value.
func single(e ast.Expr) ast.Expr {
	switch e := e.(type) {
	case *ast.FuncCallExpr:
		e.AdjustRet = true
	case *ast.Comma3Expr:
		e.AdjustRet = true
	}
	return e
}

func setCall(at ast.PositionHolder, table, key ast.Expr, values ...ast.Expr) ast.Stmt {
	c := call(at, nameSet, append([]ast.Expr{table, key}, values...)...)
	s := &ast.FuncCallStmt{Expr: c}
	setLine(s, at.Line())
	return s
}

func call(at ast.PositionHolder, name string, args ...ast.Expr) *ast.FuncCallExpr {
	if name != nameSet {
		for i := range args {
			args[i] = single(args[i])
		}
	}
	c := &ast.FuncCallExpr{Func: ident(at, name), Args: args, AdjustRet: name != nameSet}
	setLine(c, at.Line())
	return c
}

func ident(at ast.PositionHolder, name string) *ast.IdentExpr {
	i := &ast.IdentExpr{Value: name}
	setLine(i, at.Line())
	return i
}

func setLine(n ast.PositionHolder, line int) {
	n.SetLine(line)
	n.SetLastLine(line)
}
