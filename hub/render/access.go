package render

import (
	"context"

	"github.com/capstan-cd/capstan/hub"
)

// Access is all that a renderer sees of the world. In the hub it is a
// Recorder; in a worker it is the connection to one. It is used by one
// goroutine at a time.
type Access interface {
	// Ask answers one question. An error has been classified, and it is final:
	// a renderer returns it unchanged.
	Ask(ctx context.Context, q Question) (Answer, error)
}

// An Op is what a question is about.
type Op string

// The questions. Names are paths from the root of the source's tree, without
// "." or ".." in them; the root is ".". Links are followed inside the tree.
const (
	OpStat Op = "stat" // what is at each name: Answer.Stats
	OpList Op = "list" // what is in the directory Names[0]: Answer.Entries; Stats[0] is the directory itself
	OpRead Op = "read" // the contents of each name: Answer.Files
	OpReal Op = "real" // Names[0] with every link resolved: Answer.Real; Stats[0] is what is there
	// OpRemote reads the contents of addresses in the spec of the source, as
	// they are written there: Answer.Files.
	OpRemote Op = "remote"
	// OpChart reads archives of charts from repositories: Answer.Files.
	// Names[0] is the file that declares them, a Chart.yaml, a
	// requirements.yaml or a kustomization. The other names are places in its
	// list, from "0". A chart that the project may not have is Refused.
	OpChart Op = "chart"
	// OpBase admits a base of another repository. Names are the kustomization
	// that declares it and its place there, from "0": Answer.Real is where it is.
	OpBase Op = "base"
	// OpPlugin runs a plugin. Names are action, full name, directory and the
	// block of the source as JSON: Answer.Files has one, which is Found if the
	// plugin matches; its contents are what the plugin has made.
	OpPlugin Op = "plugin"
	OpFact   Op = "fact" // answers about cluster, application and revision: Answer.Facts
)

// A Question is one request of a renderer.
type Question struct {
	Op      Op       `json:"op"`
	Source  int      `json:"s,omitempty"`
	Names   []string `json:"n"`
	Recurse bool     `json:"r,omitempty"` // OpList: the directories below too
	Hidden  bool     `json:"h,omitempty"` // OpList with Recurse: even directories whose name begins with a dot
	Links   bool     `json:"l,omitempty"` // OpList with Recurse: even directories that are links
}

// An Answer holds one item for each name of the question, in its order.
type Answer struct {
	Stats   []Stat   `json:"st,omitempty"`
	Entries []Entry  `json:"e,omitempty"`
	Files   []File   `json:"f,omitempty"`
	Real    string   `json:"p,omitempty"`
	Facts   []string `json:"a,omitempty"`
}

// A Stat is what is at a name: InputFile, InputDir or InputMissing.
type Stat struct {
	Kind hub.InputKind `json:"k"`
}

// An Entry is one name in a listed directory. Path is relative to it.
type Entry struct {
	Path string        `json:"p"`
	Kind hub.InputKind `json:"k"`           // InputFile or InputDir; InputMissing for a link that leads nowhere
	Link bool          `json:"l,omitempty"` // Kind is that of the target
}

// A File is what was at a name.
type File struct {
	Found   bool     `json:"f"`
	Size    int64    `json:"s"`
	Refused *Failure `json:"x,omitempty"` // OpChart: why there is none
	Data    []byte   `json:"-"`           // sent beside the answer
	// Secrets are the values in the output of a plugin that the hub knows to be
	// secret (OpPlugin). No other values are sent.
	Secrets []string `json:"v,omitempty"`
}

// The facts. The first two and every one that begins with FactAPIVersion are
// about the destination; answers are "" while nothing is known of it.
const (
	FactKubeVersion   = "kubeVersion"
	FactAPIVersions   = "apiVersions"   // the whole list, one a line
	FactAPIVersion    = "apiVersion:"   // with "apps/v1" after it: "true", "false" or ""
	FactSetting       = "setting:"      // with the key of a setting that hub.Renders names after it: its value; "" if it is not set
	FactPlugins       = "plugins"       // those that discover, as JSON; "" if there are none
	FactPlugin        = "plugin:"       // with the full name of a plugin after it: its digest; "" if there is none
	FactGeneratePaths = "generatePaths" // the annotation of the application
	FactEnv           = "env:"          // with the name of a variable of the build environment (SRC-17) after it
)
