package render

import (
	"context"
	"encoding/json"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	loop "github.com/capstan-cd/capstan/shared/lifecycle"
)

// An InstalledPlugin is what renders need to know of a plugin that a tenant may
// use.
type InstalledPlugin struct {
	Name     string `json:"name"`
	Version  string `json:"version,omitempty"`
	FileName string `json:"fileName,omitempty"` // a glob in the source's path
	Glob     string `json:"glob,omitempty"`     // of files at and below it
	Command  bool   `json:"command,omitempty"`  // a program decides
	// Digest covers the whole definition and the operator's variables.
	Digest string `json:"-"`
	// IgnoresRevision means that another commit alone is no reason to render.
	IgnoresRevision bool `json:"-"`
}

// FullName is the name with the version, if there is one (CMP-06).
func (p InstalledPlugin) FullName() string {
	if p.Version == "" {
		return p.Name
	}
	return p.Name + "-" + p.Version
}

// Discovers reports whether the plugin can find its sources by itself.
func (p InstalledPlugin) Discovers() bool { return p.FileName != "" || p.Glob != "" || p.Command }

// A PluginAction is what a plugin is run for.
type PluginAction string

// The actions.
const (
	PluginGenerate PluginAction = "generate"
	PluginMatch    PluginAction = "match"
	PluginAnnounce PluginAction = "announce" // its parameters, as JSON
)

// A PluginCall runs a plugin on a part of a tree.
type PluginCall struct {
	Tenant hub.TenantID
	Source int // index of the source
	// Repository is where the source comes from; it is empty if nobody knows.
	Repository hub.Repository
	Plugin     string
	Action     PluginAction
	Tree       hub.Tree
	Root       string   // what is exported of the tree
	Dir        string   // where the plugin runs, at or below Root
	Exclude    []string // globs of paths below Root that are not exported
	Env        []string
	Output     int64 // bytes that the plugin may write
	// Alive is called from time to time while it runs. It may be nil.
	Alive func()
}

// A PluginReply is what a plugin answers.
type PluginReply struct {
	Matches bool
	Output  []byte
	Secrets []string // given to the plugin as secrets, and found in its output
}

// Plugins runs the plugins that the operator has declared.
type Plugins interface {
	// Installed returns those that a tenant may use, in the order in which
	// discovery tries them.
	Installed(tenant hub.TenantID) []InstalledPlugin
	// Run runs one. An error of kind Invalid or Exceeded is about the source.
	Run(ctx context.Context, call PluginCall) (PluginReply, error)
}

// Plugs lets applications use plugins. It comes before Run.
func (s *Stage) Plugs(plugins Plugins) { s.plugins = plugins }

// plugging lets one request run plugins.
func (r *round) plugging(ctx context.Context, j *job, req Request) Request {
	if r.plugins == nil {
		return req
	}
	req.Plugins = r.plugins.Installed(req.Tenant)
	req.Plugin = func(within context.Context, call PluginCall) (PluginReply, error) {
		call.Alive = func() { loop.Beat(ctx) }
		if call.Source < len(j.refresh.Sources) {
			call.Repository = j.refresh.Sources[call.Source].Repository
		}
		call.Alive()
		defer call.Alive()
		return r.plugins.Run(within, call)
	}
	return req
}

// most plugin runs of one render: each source may be tried by several.
const maxPluginRuns = 64

// installedPlugin returns the plugin with a full name.
func (r Request) installedPlugin(name string) (InstalledPlugin, bool) {
	i := slices.IndexFunc(r.Plugins, func(p InstalledPlugin) bool { return p.FullName() == name })
	if i < 0 {
		return InstalledPlugin{}, false
	}
	return r.Plugins[i], true
}

// discovering is the fact about all plugins that discover: a change of what
// they look for may change the type of any source.
func (r Request) discovering() string {
	type entry struct {
		InstalledPlugin
		Digest string `json:"digest,omitempty"`
	}
	var all []entry
	for _, p := range r.Plugins {
		if p.Discovers() {
			e := entry{InstalledPlugin: p}
			if p.Command {
				e.Digest = p.Digest
			}
			all = append(all, e)
		}
	}
	if len(all) == 0 {
		return ""
	}
	text, _ := json.Marshal(all) // texts and switches always have a JSON form
	return string(text)
}

// plugin runs a plugin for a source. The worker chooses plugin and parameters,
// as files in the repository may; it can neither choose the program nor widen
// what the plugin sees. Names are action, full name, directory and block.
func (r *Recorder) plugin(ctx context.Context, tree hub.Tree, q Question) (Answer, error) {
	if len(q.Names) != 4 {
		return Answer{}, fault.New(fault.Invalid, "a question about a plugin has %d names", len(q.Names))
	}
	action, name, dir := PluginAction(q.Names[0]), q.Names[1], q.Names[2]
	if action != PluginGenerate && action != PluginMatch && action != PluginAnnounce {
		return Answer{}, fault.New(fault.Invalid, "a plugin cannot be asked to %s", quote(q.Names[0]))
	}
	block, err := hub.Source{Plugin: json.RawMessage(q.Names[3])}.PluginBlock()
	if err != nil {
		return Answer{}, err
	}
	installed, ok := r.req.installedPlugin(name)
	if !ok || r.req.Plugin == nil || block == nil {
		return Answer{}, unknownPlugin(name)
	}
	if r.plugins++; r.plugins > maxPluginRuns {
		return Answer{}, fault.New(fault.Exceeded, "the render runs plugins more than %d times", maxPluginRuns)
	}
	call := PluginCall{
		Tenant: r.req.Tenant, Source: q.Source, Plugin: name, Action: action, Tree: tree, Dir: dir,
		Output: min(r.limits.OutputBytes, r.limits.InputBytes-r.read),
	}
	if err := r.prepare(&call, installed, *block); err != nil {
		return Answer{}, err
	}
	reply, err := r.req.Plugin(ctx, call)
	if err != nil {
		if !refused(err) && r.trouble == nil {
			r.trouble = err
		}
		return Answer{}, err
	}
	r.read += int64(len(reply.Output))
	return Answer{Files: []File{{Found: reply.Matches, Size: int64(len(reply.Output)), Data: reply.Output, Secrets: reply.Secrets}}}, nil
}

func unknownPlugin(name string) error {
	return fault.With(fault.New(fault.Invalid, "there is no plugin %s for this organisation", quote(name)),
		"", "capstan plugin list shows the plugins; one with a version is named NAME-VERSION")
}

// prepare decides what a plugin sees, and records it.
func (r *Recorder) prepare(call *PluginCall, installed InstalledPlugin, block hub.PluginSource) error {
	if err := r.add(factInput(call.Source, FactPlugin+installed.FullName(), installed.Digest)); err != nil {
		return err
	}
	facts := map[string]string{}
	for _, name := range []string{FactSetting + hub.PluginExclusionsKey, FactSetting + hub.PluginPathsKey, FactGeneratePaths} {
		facts[name] = r.req.fact(call.Source, name)
		if err := r.add(factInput(call.Source, name, facts[name])); err != nil {
			return err
		}
	}
	call.Exclude = splitList(facts[FactSetting+hub.PluginExclusionsKey])
	call.Root = "."
	if on, err := strconv.ParseBool(strings.TrimSpace(facts[FactSetting+hub.PluginPathsKey])); on && err == nil {
		call.Root = commonRoot(call.Dir, splitList(facts[FactGeneratePaths]))
	}
	if err := r.recordState(call.Tree, call.Source, hub.InputTree, call.Root); err != nil {
		return err
	}
	env, err := r.variables(call.Source, installed, block)
	call.Env = env
	return err
}

// variables is the environment that an application gives to a plugin: that of
// the build, its own and its parameters.
func (r *Recorder) variables(source int, installed InstalledPlugin, block hub.PluginSource) ([]string, error) {
	var env []string
	for _, name := range EnvNames() {
		value := r.req.env(source, name)
		env = append(env, name+"="+value)
		if installed.IgnoresRevision && strings.HasPrefix(name, "ARGOCD_APP_REVISION") {
			continue
		}
		if err := r.add(factInput(source, FactEnv+name, value)); err != nil {
			return nil, err
		}
	}
	for _, v := range block.Env {
		env = append(env, "ARGOCD_ENV_"+v.Name+"="+os.Expand(v.Value, func(name string) string {
			if name == "$" {
				return "$"
			}
			return r.req.env(source, name)
		}))
	}
	parameters, err := block.Variables()
	return append(env, parameters...), err
}

// splitList reads what stands between semicolons.
func splitList(text string) []string {
	var out []string
	for item := range strings.SplitSeq(text, ";") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

// commonRoot is the deepest directory that contains dir and all of the paths,
// which are relative to it or, with a slash in front, to the repository. A path
// that leaves the repository means all of it.
func commonRoot(dir string, paths []string) string {
	if len(paths) == 0 {
		return "."
	}
	root := elements(dir)
	for _, written := range paths {
		name, err := Within(dir, written)
		if err != nil {
			return "."
		}
		if strings.ContainsAny(name, "*?[{") {
			name = path.Dir(name[:strings.IndexAny(name, "*?[{")] + "x")
		}
		other := elements(name)
		n := 0
		for n < len(root) && n < len(other) && root[n] == other[n] {
			n++
		}
		root = root[:n]
	}
	return path.Join(append([]string{"."}, root...)...)
}

// RunPlugin asks the hub to run a plugin on the source.
func (f Files) RunPlugin(ctx context.Context, action PluginAction, name, dir string, block hub.PluginSource) (File, error) {
	text, err := json.Marshal(block)
	if err != nil {
		return File{}, fault.Wrap(fault.Invalid, err, "plugin cannot be written: %s", err)
	}
	a, err := f.request(ctx, Question{Op: OpPlugin, Names: []string{string(action), name, dir, string(text)}})
	if err != nil {
		return File{}, err
	}
	return a.Files[0], nil
}

// InstalledPlugins returns the plugins that discover sources.
func (f Files) InstalledPlugins(ctx context.Context) ([]InstalledPlugin, error) {
	text, err := f.Fact(ctx, FactPlugins)
	if err != nil || text == "" {
		return nil, err
	}
	var all []InstalledPlugin
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, fault.Wrap(fault.Internal, err, "the list of plugins cannot be read")
	}
	return all, nil
}
