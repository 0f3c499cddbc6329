package client

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
)

// Save copies the body of a response to w as it comes. The error is an
// AnswerError if the hub sent one; a body that ends too early is an error.
func Save(w io.Writer, res *http.Response, err error) error {
	if err != nil || res.StatusCode >= http.StatusMultipleChoices {
		_, err := Read(res, err)
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(w, res.Body); err != nil {
		return Unreachable(err)
	}
	return nil
}

// SaveFile is Save to a file, which is there once it is complete. Only its owner
// can read it.
func SaveFile(path string, res *http.Response, err error) (failed error) {
	f, created := os.CreateTemp(filepath.Dir(path), ".capstan-download-*")
	if created != nil {
		if err == nil {
			_ = res.Body.Close()
		}
		return fmt.Errorf("write %s: %w", path, created)
	}
	defer func() {
		if failed != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if err := errors.Join(Save(f, res, err), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
