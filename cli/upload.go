package cli

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/files"
	"github.com/capstan-cd/capstan/cli/usage"
)

// upload is what is sent to the hub to be rendered in the place of a source.
type upload struct {
	root    string // the repository's folder
	include []string
}

// flags adds those that say what is sent. The folder itself is --local.
func (u *upload) flags(f *pflag.FlagSet) {
	f.StringVar(&u.root, "local-repo-root", "", "with --server-side-generate: the repository's folder, if --local is a folder in it")
	f.StringSliceVar(&u.include, "local-include", files.Includes(), "with --server-side-generate: names of files that are sent")
}

// folder is the one that is sent: all of the repository, because files of an
// application may use others.
func (u upload) folder(local string) (string, error) {
	if u.root == "" {
		return local, nil
	}
	root, err := filepath.Abs(u.root)
	if err != nil {
		return "", err
	}
	inside, err := filepath.Abs(local)
	if err != nil {
		return "", err
	}
	if rel, err := filepath.Rel(root, inside); err != nil || !filepath.IsLocal(rel) {
		return "", usage.Errorf("--local %s lies outside of --local-repo-root %s; give a root that holds it", local, u.root)
	}
	return root, nil
}

// pack writes the folder to a file, and returns it as the body of a request.
// Done deletes it.
func (u upload) pack(local string) (body client.Raw, done func(), err error) {
	folder, err := u.folder(local)
	if err != nil {
		return body, nil, err
	}
	f, err := os.CreateTemp("", "capstan-upload-*.tar.gz")
	if err != nil {
		return body, nil, fmt.Errorf("make a file for the upload: %w", err)
	}
	done = func() {
		_ = f.Close() // the request may have done it
		_ = os.Remove(f.Name())
	}
	if err = files.Pack(f, folder, u.include); err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		done()
		return body, nil, err
	}
	return client.Raw{ContentType: "application/gzip", Content: f}, done, nil
}

// position is the source that an upload is of; 0 is the first.
func position(positions []int) (int, error) {
	switch len(positions) {
	case 0:
		return 0, nil
	case 1:
		return positions[0], nil
	}
	return 0, usage.Errorf("files are sent for one source; give one number with --source-positions")
}
