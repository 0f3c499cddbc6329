package charts

import (
	"context"
	"strings"

	"github.com/capstan-cd/capstan/hub"
)

// A Chosen is the version of a chart that a repository has for a ref.
type Chosen struct {
	Version string
	Digest  string // of the archive; empty if the index has none
	ref     hub.ChartRef
	choice  choice
}

// Choose finds the version that a ref selects. The index is that of a chart
// repository; a registry needs none. ErrNone is in the chain of the error if
// there is no such chart or version.
func (c *Connection) Choose(ctx context.Context, ref hub.ChartRef, of Index) (Chosen, error) {
	if err := checkRef(ref); err != nil {
		return Chosen{}, err
	}
	if strings.HasPrefix(c.address, "oci://") {
		found, err := c.chooseTag(ctx, ref)
		return Chosen{found.version, found.digest, ref, found}, err
	}
	all, err := of.Versions(ref.Name)
	if err != nil {
		return Chosen{}, noEntry(ref, err)
	}
	found, err := c.choose(ref, all)
	return Chosen{found.version, found.digest, ref, found}, err
}

// Archive reads the archive of a chosen version. Anywhere sends the credential
// also to another host that the index names.
func (c *Connection) Archive(ctx context.Context, chosen Chosen, anywhere bool) ([]byte, error) {
	if strings.HasPrefix(c.address, "oci://") {
		return c.layer(ctx, chosen.ref, chosen.choice)
	}
	return c.archive(ctx, chosen.ref, chosen.choice, anywhere)
}

// OtherDigest is the error that an archive is not the one that its repository
// has published.
func OtherDigest(ref hub.ChartRef, version string) error { return otherDigest(ref, version) }
