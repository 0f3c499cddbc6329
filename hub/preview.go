package hub

import "io"

// The settings of ParamsMap that bound uploads (REPO-12): bytes as they are
// sent, and unpacked.
const (
	UploadSizeKey      = "reposerver.streamed.manifest.max.tar.size"
	UploadExtractedKey = "reposerver.streamed.manifest.max.extracted.size"
)

// What those settings can allow at most, and what holds without them.
const (
	MaxUpload          = 100 << 20
	MaxUploadExtracted = 1 << 30
)

// An Upload is a folder that a caller sends in the place of one source.
type Upload struct {
	Position int       // of the source; 1, or 0, is the first
	Archive  io.Reader // a tar, compressed with gzip
}

// A Preview is what an application would consist of at other revisions. Nothing
// of it is stored.
type Preview struct {
	Revisions []string // commits, by source
	Objects   []ObjectRef
	Bodies    [][]byte // canonical JSON in the order of Objects, not masked
	Warnings  []string
}
