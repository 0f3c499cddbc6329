package render

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"slices"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A render reads at most so many files by address, each of so many bytes.
const (
	maxRemotes = 32
	maxRemote  = 4 << 20
)

// remote answers what is at addresses. A worker has no network and may be
// under the control of what it renders; so it chooses among the addresses of
// the spec and can make up none, which would carry away what it has read.
func (r *Recorder) remote(q Question) (Answer, error) {
	var a Answer
	for _, written := range q.Names {
		if r.remotes++; r.remotes > maxRemotes {
			return Answer{}, fault.New(fault.Exceeded, "the render reads more than %d files by their address", maxRemotes)
		}
		data, err := r.req.remote(q.Source, written, min(maxRemote, r.limits.FileBytes, r.limits.InputBytes-r.read))
		if err != nil {
			if !refused(err) && r.trouble == nil {
				r.trouble = err
			}
			return Answer{}, err
		}
		r.read += int64(len(data))
		if err := r.add(remoteInput(q.Source, written, data)); err != nil {
			return Answer{}, err
		}
		a.Files = append(a.Files, File{Found: true, Size: int64(len(data)), Data: data})
	}
	return a, nil
}

// remote reads one file by the address that the spec of a source names.
func (r Request) remote(source int, written string, most int64) ([]byte, error) {
	if !r.names(source, written) {
		return nil, fault.With(fault.New(fault.Invalid, "the address %s is not one of the application's own helm.valueFiles and helm.fileParameters", quote(repourl.Redact(written))),
			"", "name it in the application; files in the repository cannot add addresses")
	}
	if r.Fetch == nil {
		return nil, fault.New(fault.Invalid, "files cannot be read by their address here: %s", quote(repourl.Redact(written)))
	}
	return r.Fetch(r.expand(source, written), hub.ValueSchemes(r.Settings[hub.ValueSchemesKey]), most)
}

// names reports whether the spec of a source names an address.
func (r Request) names(source int, written string) bool {
	if source < 0 || source >= len(r.Sources) || r.Sources[source].Helm == nil {
		return false
	}
	h := r.Sources[source].Helm
	return slices.Contains(h.ValueFiles, written) ||
		slices.ContainsFunc(h.FileParameters, func(p hub.HelmFile) bool { return p.Path == written })
}

// expand replaces the variables of the build environment in an address.
func (r Request) expand(source int, written string) string {
	return os.Expand(written, func(name string) string {
		if name == "$" {
			return "$"
		}
		return r.env(source, name)
	})
}

func remoteInput(source int, written string, data []byte) hub.Input {
	sum := sha256.Sum256(data)
	return hub.Input{Source: source, Kind: hub.InputRemote, Path: written, Hash: "sha256:" + hex.EncodeToString(sum[:])}
}
