package git

import (
	"bytes"
	"fmt"
)

// LFSWarning reports whether a file is a Git LFS pointer, and the sentence to
// warn with. Pointers are served as they are: their content is not in the
// repository.
func LFSWarning(name string, data []byte) (warning string, pointer bool) {
	if len(data) > 1024 || !bytes.HasPrefix(data, []byte("version https://git-lfs.github.com/spec/")) || !bytes.Contains(data, []byte("\noid sha256:")) {
		return "", false
	}
	return fmt.Sprintf("%s is a Git LFS pointer; its content is not fetched, so keep manifests out of LFS", name), true
}
