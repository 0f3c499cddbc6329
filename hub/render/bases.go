package render

import (
	"cmp"
	"context"
	"io/fs"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/fault"
)

// BasesDir is the directory in which a tree has the bases of other repositories
// that its kustomizations name (KUST-10). A base is a directory there, which is
// called like its repository and revision. It is fetched when it is read.
const BasesDir = hub.BasesDir

const (
	maxBases  = 32              // that one render reads
	maxBase   = 1000            // bytes of an address with its revision
	baseLimit = 6 * time.Minute // to fetch one
)

// A Base is a directory of another repository.
type Base struct {
	Address  string // of the repository, as written
	Revision string // empty: the default branch
	Dir      string // in the repository; "." is its root
}

// RemoteBase knows the forms that kustomize would fetch: URLs, git's short form
// user@host:path, GitHub without a scheme, and anything with a ref.
func RemoteBase(s string) bool {
	return regexp.MustCompile(`(?i)^(git::|[a-z][a-z0-9+.-]*://|[^/@\s]+@[^/\s]+[:/]|(www\.)?github\.com[/:])|\?(.*&)?(ref|version|timeout|submodules)=`).MatchString(s)
}

// DeclaredBases returns what resources, bases and components of a kustomization
// name in other repositories, in this order.
func DeclaredBases(k map[string]any) []string {
	var out []string
	for _, field := range BaseFields() {
		entries, _ := k[field].([]any)
		for _, v := range entries {
			if s, ok := v.(string); ok && !strings.ContainsRune(s, '\n') && RemoteBase(s) {
				out = append(out, s)
			}
		}
	}
	return out
}

// BaseFields are the fields of a kustomization that name directories.
func BaseFields() []string { return []string{"resources", "bases", "components"} }

// ParseBase reads an address as kustomize writes it. The repository ends with
// .git, before //, after _git/NAME, or after two elements of the path.
func ParseBase(written string) (Base, error) {
	shown := quote(repourl.Redact(written))
	refuse := func(why, fix string) (Base, error) {
		return Base{}, fault.With(fault.New(fault.Invalid, "the base %s %s", shown, why), "", fix)
	}
	text, query, _ := strings.Cut(strings.TrimPrefix(written, "git::"), "?")
	values, err := url.ParseQuery(query)
	switch {
	case len(written) > maxBase:
		return refuse("is too long", "")
	case err != nil:
		return refuse("has parameters that cannot be read", "write ?ref=REVISION")
	}
	host, rest := splitHost(text)
	if host == "" || rest == "" {
		return refuse("names no repository of a server", "write it like https://git.example.com/team/repo//directory?ref=v1")
	}
	_, server, _ := strings.Cut(host, "://")
	if user, _, named := strings.Cut(server, "@"); named && strings.Contains(user, ":") {
		return refuse("contains a password", "register the repository with its credential")
	}
	repo, dir := splitRepository(rest)
	if strings.Count(strings.Trim(repo, "/"), "/") == 0 && !strings.HasSuffix(repo, ".git") && !strings.Contains(rest, "//") {
		return refuse("names no repository", "write // between repository and directory")
	}
	if dir == "." && query == "" && slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(repo)) {
		return refuse("is a file at an address, which is not served", "commit the file, or name its repository and directory")
	}
	if dir != "." && slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(dir)) && !strings.Contains(rest, "//") && query == "" {
		return refuse("is a file at an address, which is not served", "commit the file, or name its repository and directory")
	}
	if dir == ".." || strings.HasPrefix(dir, "../") {
		return refuse("leads out of its repository", "")
	}
	return Base{Address: host + repo, Revision: cmp.Or(values.Get("ref"), values.Get("version")), Dir: dir}, nil
}

// splitHost splits an address behind its server.
func splitHost(text string) (host, rest string) {
	if at := regexp.MustCompile(`(?i)^(www\.)?github\.com[/:]`).FindString(text); at != "" {
		return "https://github.com/", text[len(at):]
	}
	if scheme, after, ok := strings.Cut(text, "://"); ok {
		server, rest, _ := strings.Cut(after, "/")
		return scheme + "://" + server + "/", rest
	}
	if at := regexp.MustCompile(`^[^/@\s]+@[^/:\s]+[:/]`).FindString(text); at != "" {
		return "ssh://" + strings.TrimRight(at, ":/") + "/", strings.TrimLeft(text[len(at):], "/")
	}
	server, rest, _ := strings.Cut(text, "/")
	if !strings.Contains(server, ".") {
		return "", ""
	}
	return "https://" + server + "/", rest
}

// splitRepository splits the path of an address into repository and directory.
func splitRepository(rest string) (repo, dir string) {
	rest = strings.TrimSuffix(rest, "/")
	end := len(rest)
	if before, _, ok := strings.Cut(rest, "//"); ok {
		end = len(before)
	} else if i := strings.Index(rest+"/", ".git/"); i >= 0 {
		end = i + len(".git")
	} else if before, after, ok := strings.Cut(rest, "_git/"); ok {
		name, _, _ := strings.Cut(after, "/")
		end = len(before) + len("_git/") + len(name)
	} else if parts := strings.SplitN(rest, "/", 3); len(parts) == 3 {
		end = len(parts[0]) + 1 + len(parts[1])
	}
	return rest[:end], path.Clean("./" + strings.TrimLeft(rest[end:], "/"))
}

// root is the directory of a base's repository in a tree.
func (b Base) root() string {
	return BasesDir + "/" + url.PathEscape(b.Address+"?ref="+b.Revision)
}

// Path is where a base is in a tree.
func (b Base) Path() string { return path.Join(b.root(), b.Dir) }

// baseAt splits a name below BasesDir. Ok is false for every other name.
func baseAt(name string) (b Base, root, below string, ok bool) {
	address, revision, root, below, ok := hub.BaseAt(name)
	return Base{Address: address, Revision: revision}, root, below, ok
}

// Base returns where a base is that a kustomization declares, by its place
// among DeclaredBases.
func (f Files) Base(ctx context.Context, file string, place int) (string, error) {
	a, err := f.request(ctx, Question{Op: OpBase, Names: []string{file, strconv.Itoa(place)}})
	return a.Real, err
}

// base admits a base that a kustomization declares. A worker may be under the
// control of what it renders, so the hub reads itself what is declared: an
// address that a worker made up could carry away what it has read.
func (r *Recorder) base(tree hub.Tree, q Question) (Answer, error) {
	if len(q.Names) != 2 || !slices.Contains(kustomizationFiles(), path.Base(q.Names[0])) {
		return Answer{}, fault.New(fault.Invalid, "the file declares no bases")
	}
	file, err := r.readFile(tree, q.Source, q.Names[0])
	if err != nil {
		return Answer{}, err
	}
	var k map[string]any
	if err := yaml.Unmarshal(file.Data, &k); err != nil {
		return Answer{}, fault.With(fault.Wrap(fault.Invalid, err, "the file cannot be read"), q.Names[0], "")
	}
	declared := DeclaredBases(k)
	i, err := strconv.Atoi(q.Names[1])
	if err != nil || i < 0 || i >= len(declared) {
		return Answer{}, fault.With(fault.New(fault.Invalid, "the file declares no base at place %s", quote(q.Names[1])), q.Names[0], "")
	}
	b, err := ParseBase(declared[i])
	if err != nil {
		return Answer{}, fault.With(err, q.Names[0], "")
	}
	if r.bases[readKey{source: q.Source, name: b.root()}] = true; len(r.bases) > maxBases {
		return Answer{}, fault.New(fault.Exceeded, "the render reads more than %d bases of other repositories", maxBases)
	}
	s, err := r.resolveName(tree, q.Source, b.Path())
	if err != nil && refused(err) { // the answer depends on a base that is not there
		if err := r.add(hub.Input{Source: q.Source, Kind: hub.InputMissing, Path: b.Path()}); err != nil {
			return Answer{}, err
		}
	}
	switch {
	case err != nil:
		return Answer{}, fault.With(err, q.Names[0], "")
	case s.Kind == hub.InputMissing && !bases(tree):
		return Answer{}, fault.With(fault.New(fault.Invalid, "bases of other repositories cannot be fetched here: %s", quote(repourl.Redact(declared[i]))), q.Names[0], "use a source of type Git, or commit the base")
	case s.Kind != hub.InputDir:
		return Answer{}, fault.With(fault.New(fault.Invalid, "the base %s has no directory %q", quote(repourl.Redact(declared[i])), b.Dir), q.Names[0], "correct directory or revision")
	}
	return Answer{Real: b.Path()}, nil
}

// checkBase refuses names in bases that no kustomization was found to declare.
func (r *Recorder) checkBase(source int, name string) error {
	if name != BasesDir && !strings.HasPrefix(name, BasesDir+"/") {
		return nil
	}
	if _, root, _, ok := baseAt(name); name == BasesDir || ok && r.bases[readKey{source: source, name: root}] {
		return nil
	}
	return fault.New(fault.Invalid, "no kustomization declares the base of %s", quote(name))
}

// Bases opens the repositories of bases.
type Bases interface {
	// Base opens one for a file of the repository parent, as it was at since or
	// later. With a demand, one that does not fulfil it is refused.
	Base(ctx context.Context, tenant hub.TenantID, parent hub.Repository, project, address, revision string, since time.Time, demand *hub.SignatureDemand) (hub.Tree, error)
}

// Borrows lets kustomizations use bases of other repositories. It comes after
// Serves and before Run.
func (s *Stage) Borrows(bases Bases) { s.bases = bases }

// withBases returns the tree of a source with the bases that it may use.
func (s *Stage) withBases(ctx context.Context, tenant hub.TenantID, tree hub.Tree, refresh hub.Refresh, parent hub.Repository) hub.Tree {
	if s.bases == nil || parent.Type.OrDefault() != hub.GitRepository {
		return tree
	}
	project := refresh.Application.Project
	return WithBases(tree, func(b Base) (hub.Tree, error) {
		if s.permitsRepository != nil {
			address, err := repourl.Normalize(b.Address)
			if err != nil {
				return nil, fault.New(fault.Invalid, "the address of the base cannot be read")
			}
			if err := s.permitsRepository(refresh, address); err != nil {
				return nil, fault.New(fault.KindOf(err), "it is a base, and %s", fault.Sentence(err))
			}
		}
		demand, err := demandOfBase(refresh, parent, b)
		if err != nil {
			return nil, err
		}
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), baseLimit)
		defer cancel()
		return s.bases.Base(limited, tenant, parent, project, b.Address, b.Revision, refresh.BasesPushed, demand)
	})
}

// demandOfBase is what the project demands of a base's commit: what it demands
// of the base's own repository, or else of the repository that names it. So no
// unsigned base gets into a source that must be signed. Nil: nothing.
func demandOfBase(refresh hub.Refresh, parent hub.Repository, b Base) (*hub.SignatureDemand, error) {
	if refresh.Project == nil {
		return nil, nil
	}
	project, err := refresh.Project.Effective()
	if err != nil {
		return nil, err
	}
	policy, named, demanded := project.PolicyOf(b.Address)
	if !named {
		policy, demanded = demandOfParent(project.Integrity, refresh, parent)
	}
	if !demanded {
		return nil, nil
	}
	return &hub.SignatureDemand{Policy: policy, Keys: refresh.PublicKeys}, nil
}

// demandOfParent is what is demanded of a repository, by its address or as the
// application writes it.
func demandOfParent(of hub.Integrity, refresh hub.Refresh, parent hub.Repository) (policy hub.SignaturePolicy, demanded bool) {
	written := []string{parent.URL}
	if spec, err := hub.DecodeSpec(refresh.Application.Spec); err == nil {
		for i, source := range spec.EffectiveSources() {
			if i < len(refresh.Sources) && refresh.Sources[i].Repository.ID == parent.ID {
				written = append(written, source.RepoURL)
			}
		}
	}
	for _, address := range written {
		if policy, demanded = of.Of(address); demanded {
			return policy, true
		}
	}
	return policy, false
}

// WithBases returns a tree with the bases that open finds.
func WithBases(tree hub.Tree, open func(b Base) (hub.Tree, error)) hub.Tree {
	return &basesTree{Tree: tree, opened: map[string]hub.Tree{}, open: open}
}

// A basesTree is the tree of a source with those of bases in BasesDir. It
// belongs to one goroutine.
type basesTree struct {
	hub.Tree
	open   func(b Base) (hub.Tree, error)
	opened map[string]hub.Tree // by root
}

// bases reports whether a tree has them.
func bases(tree hub.Tree) bool {
	if a, ok := tree.(*answeredTree); ok {
		tree = a.Tree
	}
	_, ok := tree.(*basesTree)
	return ok
}

// of returns the tree that has a name, and the name there.
func (t *basesTree) of(name string) (hub.Tree, string, error) {
	b, root, below, ok := baseAt(name)
	if !ok {
		return t.Tree, name, nil
	}
	tree := t.opened[root]
	if tree == nil {
		var err error
		if tree, err = t.open(b); err != nil {
			return nil, "", err
		}
		t.opened[root] = tree
	}
	return tree, below, nil
}

// Stat is that of the tree that has the name.
func (t *basesTree) Stat(name string) (fs.FileInfo, error) {
	if name == BasesDir {
		return t.Tree.Stat(".")
	}
	tree, below, err := t.of(name)
	if err != nil {
		return nil, err
	}
	return tree.Stat(below)
}

// Lstat is that of the tree that has the name.
func (t *basesTree) Lstat(name string) (fs.FileInfo, error) {
	if name == BasesDir {
		return t.Tree.Lstat(".")
	}
	tree, below, err := t.of(name)
	if err != nil {
		return nil, err
	}
	return tree.Lstat(below)
}

// ReadFile is that of the tree that has the name.
func (t *basesTree) ReadFile(name string) ([]byte, error) {
	tree, below, err := t.of(name)
	if err != nil {
		return nil, err
	}
	return tree.ReadFile(below)
}

// ReadDir is that of the tree that has the name.
func (t *basesTree) ReadDir(name string) ([]fs.DirEntry, error) {
	tree, below, err := t.of(name)
	if err != nil {
		return nil, err
	}
	return tree.ReadDir(below)
}

// Open is that of the tree that has the name.
func (t *basesTree) Open(name string) (fs.File, error) {
	tree, below, err := t.of(name)
	if err != nil {
		return nil, err
	}
	return tree.Open(below)
}

// ReadLink is that of the tree that has the name. A link may not leave a base.
func (t *basesTree) ReadLink(name string) (string, error) {
	tree, below, err := t.of(name)
	if err != nil {
		return "", err
	}
	text, err := tree.ReadLink(below)
	if err == nil && below != name && (path.IsAbs(text) || !fs.ValidPath(path.Join(path.Dir(below), text))) {
		return "", fault.Wrap(fault.Invalid, fs.ErrInvalid, "the symbolic link leads out of the base")
	}
	return text, err
}

// Input is that of the tree that has the name.
func (t *basesTree) Input(kind hub.InputKind, name string) (hub.Input, error) {
	if name == BasesDir {
		return hub.Input{Kind: hub.InputDir, Path: name}, nil
	}
	tree, below, err := t.of(name)
	if err != nil {
		return hub.Input{}, err
	}
	in, err := tree.Input(kind, below)
	in.Path = name
	return in, err
}
