package watch

import "net/http"

// The Accept headers of lists and watches of metadata.
const (
	metadataList  = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	metadataEvent = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
)

// MetadataOnly makes every list and watch request only the metadata of objects,
// so that no content of foreign objects is read.
func MetadataOnly(next http.RoundTripper) http.RoundTripper { return slim{next} }

type slim struct{ next http.RoundTripper }

// RoundTrip sends a request with another Accept header.
func (s slim) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Accept", metadataList)
	if r.URL.Query().Get("watch") != "" {
		r.Header.Set("Accept", metadataEvent)
	}
	return s.next.RoundTrip(r)
}
