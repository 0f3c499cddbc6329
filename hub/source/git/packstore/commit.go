package packstore

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
)

const (
	maxCommit  = 1 << 20 // bytes of a commit or tag that is read
	maxMessage = 500     // characters of a commit's message that are stored
	maxPeel    = 16      // tags of tags that are followed
)

// A Commit is what is used of one.
type Commit struct {
	Hash    plumbing.Hash
	Tree    plumbing.Hash
	Parent  plumbing.Hash // the first one; zero: none
	When    time.Time     // it was committed
	Author  string        // name and address
	Message string        // the beginning of it
}

// Commit reads a commit; a tag is peeled.
func (o *Objects) Commit(h plumbing.Hash) (Commit, error) {
	for range maxPeel {
		obj, err := o.Read(h, maxCommit)
		if err != nil {
			return Commit{}, err
		}
		switch obj.Kind {
		case plumbing.CommitObject:
			return parseCommit(h, obj)
		case plumbing.TagObject:
			line, _, _ := strings.Cut(string(obj.Data[:min(len(obj.Data), 48)]), "\n")
			target, ok := strings.CutPrefix(line, "object ")
			if !ok || !plumbing.IsHash(target) {
				return Commit{}, fmt.Errorf("%w: malformed tag %s", ErrDamaged, h)
			}
			h = plumbing.NewHash(target)
		default:
			return Commit{}, ErrNotCommit
		}
	}
	return Commit{}, ErrNotCommit
}

func parseCommit(h plumbing.Hash, obj Object) (Commit, error) {
	var mem plumbing.MemoryObject
	mem.SetType(plumbing.CommitObject)
	if _, err := mem.Write(obj.Data); err != nil {
		return Commit{}, fmt.Errorf("commit %s: %w", h, err)
	}
	var c object.Commit
	if err := c.Decode(&mem); err != nil {
		return Commit{}, fmt.Errorf("%w: commit %s: %w", ErrDamaged, h, err)
	}
	out := Commit{Hash: h, Tree: c.TreeHash, When: c.Committer.When, Author: author(c.Author), Message: shorten(c.Message, maxMessage)}
	if len(c.ParentHashes) > 0 {
		out.Parent = c.ParentHashes[0]
	}
	return out, nil
}

func author(s object.Signature) string {
	name, mail := shorten(s.Name, 200), shorten(s.Email, 200)
	if mail == "" {
		return name
	}
	return strings.TrimSpace(name + " <" + mail + ">")
}

// shorten returns the first characters of text that may be in any encoding.
func shorten(s string, limit int) string {
	s = strings.TrimSpace(strings.ToValidUTF8(s, string(utf8.RuneError)))
	s = strings.ReplaceAll(s, "\x00", "")
	for i := range s {
		if limit == 0 {
			return s[:i]
		}
		limit--
	}
	return s
}

// Ancestors returns up to limit first parents of a commit, nearest first; those
// that cannot be read are left out.
func (o *Objects) Ancestors(h plumbing.Hash, limit int) ([]plumbing.Hash, error) {
	var all []plumbing.Hash
	for range limit {
		c, err := o.Commit(h)
		if err != nil {
			return nil, err
		}
		if c.Parent.IsZero() {
			return all, nil
		}
		h = c.Parent
		all = append(all, h)
	}
	return all, nil
}

// ErrNotCommit means that an object is there and is no commit.
var ErrNotCommit = errors.New("the object is not a commit")
