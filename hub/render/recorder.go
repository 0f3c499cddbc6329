package render

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// maxWalk is how deep directories are listed, and maxHops how many links one
// name may lead through.
const (
	maxWalk = 64
	maxHops = 40
)

// Requested names are stored in the hub's memory and in the snapshot, so their
// bytes are bounded besides their number. Repeated requests of one render are
// bounded as well.
const (
	maxFact       = 512      // bytes of the name of a fact
	maxInputNames = 16 << 20 // bytes of all recorded names
	maxRepeats    = 32       // reads of one input, on average
)

// A Recorder answers a renderer's questions from the trees of a request and
// records everything that was read. It runs in the hub, never in a worker: a
// worker that lied about its reads could make the hub reuse wrong snapshots.
type Recorder struct {
	req      Request
	limits   Limits
	inputs   map[hub.Input]struct{}
	recorded map[readKey]struct{}
	read     int64
	names    int              // bytes of the names in inputs
	lookups  int64            // names that were requested and entries that were listed
	remotes  int              // files that were read by their address
	fetched  int              // charts that were requested
	plugins  int              // runs of plugins
	bases    map[readKey]bool // those that kustomizations declare, by source and root
	trouble  error            // first failure that is not the renderer's fault
}

type readKey struct {
	source int
	kind   hub.InputKind
	name   string
}

// NewRecorder serves one render. The trees of the request belong to it until
// the render is over.
func NewRecorder(req Request, limits Limits) *Recorder {
	return &Recorder{req: req, limits: limits.withDefaults(), inputs: map[hub.Input]struct{}{}, recorded: map[readKey]struct{}{}, bases: map[readKey]bool{}}
}

// Inputs returns all that was read, each once, in a stable order.
func (r *Recorder) Inputs() []hub.Input {
	out := make([]hub.Input, 0, len(r.inputs))
	for in := range r.inputs {
		out = append(out, in)
	}
	slices.SortFunc(out, func(a, b hub.Input) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Kind, b.Kind))
	})
	return out
}

// Trouble is the first failure of a tree itself: the render's own error would
// blame the wrong side. Nil if there was none.
func (r *Recorder) Trouble() error { return r.trouble }

// Ask answers a question and records what was read.
func (r *Recorder) Ask(ctx context.Context, q Question) (Answer, error) {
	if err := ctx.Err(); err != nil {
		return Answer{}, fmt.Errorf("render: %w", err)
	}
	if err := r.countLookups(1 + len(q.Names)); err != nil {
		return Answer{}, err
	}
	if q.Op == OpFact {
		return r.facts(q)
	}
	if q.Op == OpRemote {
		return r.remote(q)
	}
	if q.Source < 0 || q.Source >= len(r.req.Trees) || r.req.Trees[q.Source] == nil {
		return Answer{}, fault.New(fault.Invalid, "there is no source %d to read from", q.Source+1)
	}
	if len(q.Names) == 0 {
		return Answer{}, fault.New(fault.Invalid, "a question without a name")
	}
	paths := q.Names
	switch q.Op {
	case OpChart, OpBase:
		paths = q.Names[:1]
	case OpPlugin:
		paths = q.Names[min(2, len(q.Names)):min(3, len(q.Names))]
	default:
	}
	for _, name := range paths {
		if err := cmp.Or(checkName(name), r.checkBase(q.Source, name)); err != nil {
			return Answer{}, err
		}
	}
	tree := r.req.Trees[q.Source]
	switch q.Op {
	case OpStat:
		return r.stat(ctx, tree, q)
	case OpList:
		return r.list(ctx, tree, q)
	case OpRead:
		return r.readFiles(ctx, tree, q)
	case OpReal:
		return r.real(tree, q)
	case OpChart:
		return r.charts(tree, q)
	case OpBase:
		return r.base(tree, q)
	case OpPlugin:
		return r.plugin(ctx, tree, q)
	case OpFact, OpRemote:
	}
	return Answer{}, fault.New(fault.Invalid, "unknown question %q", string(q.Op))
}

// countLookups counts what a question costs the hub.
func (r *Recorder) countLookups(lookups int) error {
	if r.lookups += int64(lookups); r.lookups > maxRepeats*int64(r.limits.Inputs) {
		return fault.With(fault.New(fault.Exceeded, "the render reads files and facts more than %d times", maxRepeats*r.limits.Inputs),
			"", "look for a loop in the templates")
	}
	return nil
}

// checkName is a second check: whatever a worker requests, only names inside
// the tree are looked up.
func checkName(name string) error {
	if !fs.ValidPath(name) || strings.ContainsRune(name, 0) || len(name) > 4096 {
		return fault.New(fault.Invalid, "the path %s leaves the repository or is malformed", quote(name))
	}
	return nil
}

// quote shortens and quotes text from a repository for a message.
func quote(s string) string {
	if len(s) > 200 {
		s = s[:200] + "…"
	}
	return fmt.Sprintf("%q", s)
}

func (r *Recorder) facts(q Question) (Answer, error) {
	var a Answer
	for _, name := range q.Names {
		if len(name) > maxFact || strings.ContainsFunc(name, unicode.IsControl) || !utf8.ValidString(name) {
			return Answer{}, fault.New(fault.Invalid, "%s is not the name of an API or of a variable", quote(name))
		}
		answer := r.req.fact(q.Source, name)
		if err := r.add(factInput(q.Source, name, answer)); err != nil {
			return Answer{}, err
		}
		a.Facts = append(a.Facts, answer)
	}
	return a, nil
}

func (r *Recorder) stat(ctx context.Context, tree hub.Tree, q Question) (Answer, error) {
	a := Answer{Stats: make([]Stat, len(q.Names))}
	for i, name := range q.Names {
		if ctx.Err() != nil {
			return Answer{}, fmt.Errorf("render: %w", ctx.Err())
		}
		s, err := r.resolveName(tree, q.Source, name)
		if err != nil {
			return Answer{}, err
		}
		a.Stats[i] = s
	}
	return a, nil
}

// resolveName finds out what is at a name, through links, and records it.
func (r *Recorder) resolveName(tree hub.Tree, source int, name string) (Stat, error) {
	fi, err := tree.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Stat{hub.InputMissing}, r.add(hub.Input{Source: source, Kind: hub.InputMissing, Path: name})
	case err != nil:
		return Stat{}, r.wrong(name, err)
	case fi.IsDir():
		return Stat{hub.InputDir}, r.add(hub.Input{Source: source, Kind: hub.InputDir, Path: name})
	}
	return Stat{hub.InputFile}, r.recordState(tree, source, hub.InputFile, name)
}

func (r *Recorder) list(ctx context.Context, tree hub.Tree, q Question) (Answer, error) {
	top, err := r.resolveName(tree, q.Source, q.Names[0])
	if err != nil {
		return Answer{}, err
	}
	a := Answer{Stats: []Stat{top}}
	if top.Kind == hub.InputDir {
		err = r.walk(ctx, tree, q, "", 0, &a.Entries)
	}
	return a, err
}

// walk lists one directory below the requested one, in name order,
// and what is in its directories after each of them.
func (r *Recorder) walk(ctx context.Context, tree hub.Tree, q Question, below string, depth int, out *[]Entry) error {
	dir := path.Join(q.Names[0], below)
	if depth > maxWalk {
		return fault.With(fault.New(fault.Exceeded, "directories are nested more than %d deep", maxWalk), dir, "")
	}
	if err := r.recordState(tree, q.Source, hub.InputList, dir); err != nil {
		return err
	}
	entries, err := tree.ReadDir(dir)
	if err != nil {
		return r.wrong(dir, err)
	}
	for _, d := range entries {
		if ctx.Err() != nil {
			return fmt.Errorf("render: %w", ctx.Err())
		}
		e, err := r.entry(tree, q.Source, dir, d)
		if err != nil {
			return err
		}
		e.Path = path.Join(below, d.Name())
		*out = append(*out, e)
		if err := r.countEntries(q, len(*out)); err != nil {
			return err
		}
		if !q.enters(e) {
			continue
		}
		if err := r.walk(ctx, tree, q, e.Path, depth+1, out); err != nil {
			return err
		}
	}
	return nil
}

// countEntries counts one more entry of the reply, which has n of them now.
func (r *Recorder) countEntries(q Question, n int) error {
	if err := r.countLookups(1); err != nil {
		return err
	}
	if n > r.limits.Inputs {
		return fault.With(fault.New(fault.Exceeded, "more than %d names", r.limits.Inputs), q.Names[0], "")
	}
	return nil
}

// enters reports whether the question is also about what is below the entry.
func (q Question) enters(e Entry) bool {
	hidden := strings.HasPrefix(path.Base(e.Path), ".")
	return q.Recurse && e.Kind == hub.InputDir && (q.Hidden || !hidden) && (q.Links || !e.Link)
}

// entry describes one name of a directory. A link is described by what it
// leads to; one that leaves the tree counts as leading nowhere until somebody
// reads it, and then it is refused by name.
func (r *Recorder) entry(tree hub.Tree, source int, dir string, d fs.DirEntry) (Entry, error) {
	if d.Type()&fs.ModeSymlink == 0 {
		if d.IsDir() {
			return Entry{Kind: hub.InputDir}, nil
		}
		return Entry{Kind: hub.InputFile}, nil
	}
	name := path.Join(dir, d.Name())
	if err := r.recordState(tree, source, hub.InputLink, name); err != nil {
		return Entry{}, err
	}
	fi, err := tree.Stat(name)
	switch {
	case err != nil && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) || refused(err)):
		// The link's own text is recorded above; what is missing behind it may
		// appear, so that is recorded too.
		if errors.Is(err, fs.ErrNotExist) {
			err = r.add(hub.Input{Source: source, Kind: hub.InputMissing, Path: name})
			return Entry{Kind: hub.InputMissing, Link: true}, err
		}
		return Entry{Kind: hub.InputMissing, Link: true}, nil
	case err != nil:
		return Entry{}, r.wrong(name, err)
	case fi.IsDir():
		return Entry{Kind: hub.InputDir, Link: true}, r.add(hub.Input{Source: source, Kind: hub.InputDir, Path: name})
	}
	return Entry{Kind: hub.InputFile, Link: true}, r.recordState(tree, source, hub.InputFile, name)
}

func (r *Recorder) readFiles(ctx context.Context, tree hub.Tree, q Question) (Answer, error) {
	a := Answer{Files: make([]File, len(q.Names))}
	for i, name := range q.Names {
		if ctx.Err() != nil {
			return Answer{}, fmt.Errorf("render: %w", ctx.Err())
		}
		f, err := r.readFile(tree, q.Source, name)
		if err != nil {
			return Answer{}, err
		}
		a.Files[i] = f
	}
	return a, nil
}

func (r *Recorder) readFile(tree hub.Tree, source int, name string) (File, error) {
	fi, err := tree.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return File{}, r.add(hub.Input{Source: source, Kind: hub.InputMissing, Path: name})
	case err != nil:
		return File{}, r.wrong(name, err)
	case fi.IsDir():
		return File{}, fault.With(fault.New(fault.Invalid, "there is a directory where a file is expected"), name, "")
	case fi.Size() > r.limits.FileBytes:
		return File{}, fault.With(fault.New(fault.Exceeded, "the file has %d bytes, and at most %d are read", fi.Size(), r.limits.FileBytes), name, "")
	case r.read+fi.Size() > r.limits.InputBytes:
		return File{}, fault.With(fault.New(fault.Exceeded, "the files that this render reads have more than %d bytes", r.limits.InputBytes), name, "")
	}
	data, err := tree.ReadFile(name)
	if err != nil {
		return File{}, r.wrong(name, err)
	}
	r.read += int64(len(data))
	return File{Found: true, Size: int64(len(data)), Data: data}, r.recordState(tree, source, hub.InputFile, name)
}

// real resolves every link of a name, one element at a time.
func (r *Recorder) real(tree hub.Tree, q Question) (Answer, error) {
	rest := elements(q.Names[0])
	at, hops := ".", 0
	for len(rest) > 0 {
		next := rest[0]
		rest = rest[1:]
		if next == ".." {
			if at == "." {
				return Answer{}, fault.New(fault.Invalid, "the path %s leads out of the repository through a symbolic link", quote(q.Names[0]))
			}
			at = path.Dir(at)
			continue
		}
		at = path.Join(at, next)
		if err := r.checkBase(q.Source, at); err != nil {
			return Answer{}, err
		}
		fi, err := tree.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) {
			return Answer{Stats: []Stat{{hub.InputMissing}}}, r.add(hub.Input{Source: q.Source, Kind: hub.InputMissing, Path: at})
		}
		if err != nil {
			return Answer{}, r.wrong(at, err)
		}
		if fi.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		hops++
		target, err := r.followNth(tree, q, at, hops)
		if err != nil {
			return Answer{}, err
		}
		rest = append(elements(target), rest...)
		at = path.Dir(at)
	}
	s, err := r.resolveName(tree, q.Source, at)
	return Answer{Real: at, Stats: []Stat{s}}, err
}

// followNth follows the nth link of a question, unless these are too many.
func (r *Recorder) followNth(tree hub.Tree, q Question, at string, n int) (string, error) {
	if n > maxHops {
		return "", fault.New(fault.Invalid, "the path %s leads through more than %d symbolic links", quote(q.Names[0]), maxHops)
	}
	return r.follow(tree, q.Source, at)
}

func (r *Recorder) follow(tree hub.Tree, source int, name string) (string, error) {
	if err := r.recordState(tree, source, hub.InputLink, name); err != nil {
		return "", err
	}
	target, err := tree.ReadLink(name)
	if err != nil {
		return "", r.wrong(name, err)
	}
	if path.IsAbs(target) {
		return "", fault.With(fault.New(fault.Invalid, "the symbolic link leads out of the repository"), name, "")
	}
	return target, nil
}

// elements splits a path, without "." and empty ones; ".." stays.
func elements(name string) []string {
	return slices.DeleteFunc(strings.Split(name, "/"), func(e string) bool { return e == "" || e == "." })
}

// recordState records what is at a name now.
func (r *Recorder) recordState(tree hub.Tree, source int, kind hub.InputKind, name string) error {
	key := readKey{source, kind, name}
	if _, known := r.recorded[key]; known {
		return nil
	}
	in, err := tree.Input(kind, name)
	if err != nil {
		return r.wrong(name, err)
	}
	r.recorded[key] = struct{}{}
	in.Source, in.Path = source, name
	return r.add(in)
}

func (r *Recorder) add(in hub.Input) error {
	if _, known := r.inputs[in]; known {
		return nil
	}
	if len(r.inputs) >= r.limits.Inputs {
		return fault.New(fault.Exceeded, "the render reads more than %d files and directories", r.limits.Inputs)
	}
	if r.names += len(in.Path); r.names > maxInputNames {
		return fault.New(fault.Exceeded, "the names of all files that the render reads have more than %d bytes", maxInputNames)
	}
	r.inputs[in] = struct{}{}
	return nil
}

// wrong turns a tree's error into one for users if the repository is the cause.
// Otherwise it records the error as trouble.
func (r *Recorder) wrong(name string, err error) error {
	switch {
	case refused(err):
		return fault.With(err, name, "")
	case errors.Is(err, fs.ErrInvalid):
		return fault.With(fault.Wrap(fault.Invalid, err, "the symbolic link leads out of the repository or in a circle"), name, "")
	case errors.Is(err, fs.ErrNotExist):
		return fault.With(fault.Wrap(fault.Invalid, err, "there is no such file"), name, "")
	}
	err = fmt.Errorf("read %q: %w", name, err)
	if r.trouble == nil {
		r.trouble = err
	}
	return err
}

// refused reports whether an error is already a sentence about the repository.
func refused(err error) bool {
	kind := fault.KindOf(err)
	return kind == fault.Invalid || kind == fault.Exceeded
}
