package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/sandbox"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Limits bound one program of a plugin.
type Limits struct {
	Timeout   time.Duration // default 90 s (CMP-13)
	Grace     time.Duration // between SIGTERM and SIGKILL; default 10 s
	Memory    int64         // bytes of all its processes; default 512 MiB
	Processes int           // with threads; default 128
	Disk      int64         // bytes that it may write; default 512 MiB
	Export    int64         // bytes of the tree that it gets; default 1 GiB
	Files     int           // of the tree; default 100,000
}

// A Config says which plugins there are.
type Config struct {
	Folder string   // with the definitions; empty: there are no plugins
	Read   []string // more files and directories that all plugins may read and execute
	Path   string   // to search programs in; default: the usual one
	// Temp is where exports are made; default: the system's directory. What an
	// earlier hub has left there is removed.
	Temp   string
	Limits Limits
	// AllowedNetworks are internal networks that plugins with hosts may reach.
	AllowedNetworks []netip.Prefix
	// Unsafe is set where renderers have no sandbox: then no plugin runs.
	Unsafe bool
}

// Credentials returns the credential of the repository that a source comes
// from.
type Credentials func(ctx context.Context, tenant hub.TenantID, call render.PluginCall) (hub.Credential, string, error)

// A Runner runs plugins. It is safe for use by many goroutines.
type Runner struct {
	cfg         Config
	definitions []Definition
	credentials Credentials
	abi         int // of Landlock that programs get at most; 0: the kernel's
	cleanup     cleanup
}

// New reads the definitions. It returns all that is wrong with them.
func New(cfg Config) (*Runner, error) {
	l := &cfg.Limits
	for _, d := range [...]struct {
		value *time.Duration
		def   time.Duration
	}{{&l.Timeout, 90 * time.Second}, {&l.Grace, 10 * time.Second}} {
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	for _, d := range [...]struct {
		value *int64
		def   int64
	}{{&l.Memory, 512 << 20}, {&l.Disk, 512 << 20}, {&l.Export, 1 << 30}} {
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if l.Processes == 0 {
		l.Processes = 128
	}
	if l.Files == 0 {
		l.Files = 100_000
	}
	if cfg.Path == "" {
		cfg.Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	definitions, err := Load(cfg.Folder)
	if err != nil {
		return nil, err
	}
	if len(definitions) > 0 && cfg.Unsafe {
		return nil, fault.With(fault.New(fault.Invalid, "plugins run in a sandbox only, and render.sandbox is none"), cfg.Folder, "remove render.sandbox or render.plugins.folder")
	}
	if cfg.Temp != "" && len(definitions) > 0 {
		err := os.RemoveAll(cfg.Temp)
		if err == nil {
			err = os.MkdirAll(cfg.Temp, 0o700)
		}
		if err != nil {
			return nil, fault.With(fault.Wrap(fault.Invalid, err, "plugins cannot be given a directory: %s", err), cfg.Temp, "give the hub the right to write there")
		}
	}
	return &Runner{cfg: cfg, definitions: definitions}, nil
}

// Loop waits until ctx ends, and then ends what still runs.
func (r *Runner) Loop(ctx context.Context) error {
	<-ctx.Done()
	r.cleanup.mu.Lock()
	defer r.cleanup.mu.Unlock()
	r.cleanup.close()
	return nil
}

// Grants lets plugins that ask for it have the credential of a source's
// repository. It comes before the first run.
func (r *Runner) Grants(credentials Credentials) { r.credentials = credentials }

// Definitions returns the plugins that a tenant may use.
func (r *Runner) Definitions(tenant hub.TenantID) []Definition {
	return slices.DeleteFunc(slices.Clone(r.definitions), func(d Definition) bool { return !d.serves(tenant) })
}

// Installed returns what renders need to know of them.
func (r *Runner) Installed(tenant hub.TenantID) []render.InstalledPlugin {
	var out []render.InstalledPlugin
	for _, d := range r.Definitions(tenant) {
		out = append(out, d.InstalledPlugin)
	}
	return out
}

func (r *Runner) definition(tenant hub.TenantID, name string) (Definition, error) {
	for _, d := range r.Definitions(tenant) {
		if d.FullName() == name {
			return d, nil
		}
	}
	return Definition{}, fault.New(fault.Invalid, "there is no plugin %q for this organisation", name)
}

// Run runs a plugin for a source. The private directory that it works in is
// removed afterwards, whatever happened.
func (r *Runner) Run(ctx context.Context, call render.PluginCall) (render.PluginReply, error) {
	d, err := r.definition(call.Tenant, call.Plugin)
	if err != nil {
		return render.PluginReply{}, err
	}
	w, err := r.export(ctx, d, call)
	if err != nil {
		return render.PluginReply{}, err
	}
	defer w.remove()
	switch call.Action {
	case render.PluginMatch:
		return w.match(ctx)
	case render.PluginAnnounce:
		return w.announce(ctx)
	case render.PluginGenerate:
	}
	if len(d.Init.line()) > 0 {
		if _, err := w.run(ctx, d.Init, call.Output); err != nil {
			return render.PluginReply{}, w.explain("init", err)
		}
	}
	out, err := w.run(ctx, d.Generate, call.Output)
	if err != nil {
		return render.PluginReply{}, w.explain("generate", err)
	}
	return render.PluginReply{Matches: true, Output: out, Secrets: w.found(out)}, nil
}

// announce returns the parameters of the plugin: those of its definition, and
// those that its dynamic command adds for a source (CMP-11).
func (w *workspace) announce(ctx context.Context) (render.PluginReply, error) {
	all := slices.Clone(w.definition.Static)
	if len(w.definition.Dynamic.line()) > 0 {
		dynamic, err := w.dynamic(ctx)
		if err != nil {
			return render.PluginReply{}, err
		}
		for _, p := range dynamic {
			if !slices.ContainsFunc(w.definition.Static, func(o Parameter) bool { return o.Name == p.Name }) {
				all = append(all, p)
			}
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return render.PluginReply{}, fmt.Errorf("write parameters: %w", err)
	}
	return render.PluginReply{Matches: true, Output: text}, nil
}

func (w *workspace) dynamic(ctx context.Context) ([]Parameter, error) {
	const most = 1 << 20
	name := "plugin " + w.definition.FullName()
	out, err := w.run(ctx, w.definition.Dynamic, most)
	if err != nil {
		return nil, w.explain("parameters.dynamic", err)
	}
	if len(w.found(out)) > 0 {
		return nil, fault.With(fault.New(fault.Invalid, "its parameters.dynamic prints a value of its env-file or a credential, and parameters are shown to everybody"), name,
			"have the operator correct the plugin, or name variables that are no secrets in "+annotationPublicEnv)
	}
	var dynamic []Parameter
	if err := json.Unmarshal(out, &dynamic); err != nil {
		return nil, fault.With(fault.New(fault.Invalid, "its parameters.dynamic makes no JSON list of parameters"), name, "")
	}
	for i := range dynamic {
		if err := complete(&dynamic[i]); err != nil {
			return nil, fault.With(fault.Wrap(fault.Invalid, err, "its parameters.dynamic: %s", err), name, "")
		}
	}
	return dynamic, nil
}

// Declared returns the plugins that a tenant may use, for people.
func (r *Runner) Declared(tenant hub.TenantID) []hub.DeclaredPlugin {
	out := []hub.DeclaredPlugin{}
	for _, d := range r.Definitions(tenant) {
		out = append(out, hub.DeclaredPlugin{Name: d.FullName(), Discovers: d.Discovers(), Parameters: d.Static})
	}
	return out
}

// A workspace is the private directory of one run.
type workspace struct {
	runner     *Runner
	definition Definition
	call       render.PluginCall
	dir        string
	env        []string
	secrets    []string // that no message contains
}

func (w *workspace) tree() string    { return filepath.Join(w.dir, "tree") }
func (w *workspace) scratch() string { return filepath.Join(w.dir, "scratch") }

func (w *workspace) remove() { _ = os.RemoveAll(w.dir) }

func (r *Runner) export(ctx context.Context, d Definition, call render.PluginCall) (*workspace, error) {
	dir, err := os.MkdirTemp(r.cfg.Temp, "capstan-plugin-")
	if err != nil {
		return nil, fault.Wrap(fault.Offline, err, "the hub has no room for a plugin at the moment")
	}
	w := &workspace{runner: r, definition: d, call: call, dir: dir}
	if err := w.fill(ctx); err != nil {
		w.remove()
		return nil, err
	}
	return w, nil
}

func (w *workspace) fill(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Join(w.scratch(), "tmp"), 0o700); err != nil {
		return fault.Wrap(fault.Offline, err, "the hub has no room for a plugin at the moment")
	}
	e := &export{
		tree: w.call.Tree, root: w.call.Root, dir: w.tree(), exclude: w.call.Exclude, modes: w.definition.PreserveFileMode,
		bytes: w.runner.cfg.Limits.Export, files: w.runner.cfg.Limits.Files, alive: w.call.Alive,
	}
	if err := e.all(ctx); err != nil {
		return err
	}
	return w.environment(ctx)
}

// environment is all that the program gets: nothing comes from the hub's own.
func (w *workspace) environment(ctx context.Context) error {
	w.env = append([]string{
		"PATH=" + w.runner.cfg.Path, "HOME=" + w.scratch(), "TMPDIR=" + filepath.Join(w.scratch(), "tmp"),
		"LANG=C.UTF-8", "GIT_TERMINAL_PROMPT=0",
	}, w.definition.Env...)
	w.env = append(w.env, w.call.Env...)
	for _, v := range w.definition.Env {
		if name, value, _ := strings.Cut(v, "="); !slices.Contains(w.definition.Public, name) {
			w.secrets = append(w.secrets, value)
		}
	}
	if !w.definition.GitCredentials || w.runner.credentials == nil {
		return w.fits()
	}
	cred, url, err := w.runner.credentials(ctx, w.call.Tenant, w.call)
	if err != nil {
		return err
	}
	if err := w.askpass(cred, url); err != nil {
		return err
	}
	return w.fits()
}

// fits refuses an environment that no program can be started with.
func (w *workspace) fits() error {
	const most, all = 128<<10 - 1, 1 << 20
	sum := 0
	for i, v := range w.env {
		name, value, _ := strings.Cut(v, "=")
		if len(v) > most && name == "KUBE_API_VERSIONS" {
			cut := value[:most-len(name)-1]
			w.env[i] = name + "=" + cut[:strings.LastIndexByte(cut, ',')]
		} else if len(v) > most {
			return fault.With(fault.New(fault.Exceeded, "the variable %s has %d bytes, more than a program can be given", name, len(value)), w.definition.FullName(), "")
		}
		if sum += len(w.env[i]); sum > all {
			return fault.With(fault.New(fault.Exceeded, "the variables of the plugin have more than %d bytes together", all), w.definition.FullName(), "")
		}
	}
	return nil
}

func (w *workspace) dirOf() string {
	rel, err := filepath.Rel(filepath.FromSlash(w.call.Root), filepath.FromSlash(w.call.Dir))
	if err != nil {
		rel = "."
	}
	return filepath.Join(w.tree(), rel)
}

// run runs one command of the plugin.
func (w *workspace) run(ctx context.Context, c Command, output int64) ([]byte, error) {
	limits := w.runner.cfg.Limits
	read := slices.Concat(systemPaths(), w.runner.cfg.Read, []string{w.askpassFile()})
	write := []string{w.scratch()}
	if w.definition.Writable {
		write = append(write, w.tree())
	} else {
		read = append(read, w.tree())
	}
	p := &process{
		limits: limits, scratch: write, output: output, alive: w.call.Alive, cleanup: &w.runner.cleanup,
		program: program{
			Line: c.line(), Env: w.env, Dir: w.dirOf(),
			Rules: sandbox.Rules{
				Read: read, Write: write, Devices: []string{"/dev/null"},
				Memory: uint64(limits.Memory) * 2, CPU: uint64(limits.Timeout+limits.Grace)/uint64(time.Second)*8 + 1, FileBytes: uint64(limits.Disk), Files: 1024, ABI: w.runner.abi,
				Sockets: len(w.definition.Hosts) > 0,
			},
		},
	}
	if len(w.definition.Hosts) > 0 {
		var err error
		if p.network, err = newNetwork(w.definition.Hosts, w.runner.cfg.AllowedNetworks); err != nil {
			return nil, err
		}
		defer p.network.close()
		p.program.Env = slices.Concat(p.program.Env, p.network.env())
	}
	return p.run(ctx)
}

func (w *workspace) match(ctx context.Context) (render.PluginReply, error) {
	const most = 1 << 20
	out, err := w.run(ctx, w.definition.Find, most)
	var exit *exitError
	if errors.As(err, &exit) {
		return render.PluginReply{}, nil // it does not match
	}
	if err != nil {
		return render.PluginReply{}, w.explain("discover", err)
	}
	return render.PluginReply{Matches: len(strings.TrimSpace(string(out))) > 0}, nil
}

// explain says which command failed and why. What the program wrote to its
// standard error is shown, without the values that the hub knows to be secret.
func (w *workspace) explain(what string, err error) error {
	var exit *exitError
	var start *startError
	name := "plugin " + w.definition.FullName()
	switch {
	case errors.As(err, &exit):
		text := w.masked(exit.stderr)
		if text == "" {
			text = "it wrote nothing to its standard error"
		}
		return fault.With(fault.New(fault.Invalid, "its %s command failed (%s): %s", what, exit.state, text), name, "")
	case errors.As(err, &start):
		return fault.With(fault.New(fault.Invalid, "its %s command cannot be started: %s", what, start.reason), name, "have the operator correct the plugin, or the hub's image")
	}
	if e, ok := fault.As(err); ok {
		return fault.With(err, strings.TrimSuffix(name+": "+e.Object, ": "), "")
	}
	return fmt.Errorf("%s: %w", name, err)
}

// masked makes a text of a program fit for a message.
func (w *workspace) masked(text string) string {
	const most, shortest = 2_000, 4
	slices.SortFunc(w.secrets, func(a, b string) int { return len(b) - len(a) })
	for _, s := range w.secrets {
		if len(s) >= shortest {
			text = strings.ReplaceAll(text, s, "********")
		}
	}
	text = strings.ReplaceAll(text, w.dir, "")
	text = strings.Map(func(c rune) rune {
		if c != '\n' && c != '\t' && unicode.In(c, unicode.Cc, unicode.Bidi_Control) {
			return -1
		}
		return c
	}, strings.ToValidUTF8(strings.TrimSpace(text), "\uFFFD"))
	if len(text) > most { // the end says why
		text = "…" + strings.ToValidUTF8(text[len(text)-most:], "")
	}
	return text
}

// systemPaths are where programs and their libraries are.
func systemPaths() []string {
	return []string{
		"/bin", "/sbin", "/usr", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
		"/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/alternatives", "/dev/zero", "/dev/random", "/dev/urandom",
	}
}
