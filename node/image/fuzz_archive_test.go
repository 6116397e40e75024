package image

import (
	"bytes"
	"compress/gzip"
	"io"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// FuzzInflate reads archives by anybody. It must end, however the archive says it is packed.
func FuzzInflate(f *testing.F) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte("layer"))
	_ = z.Close()
	f.Add(packed.Bytes())
	f.Add(packed.Bytes()[:8])
	e, err := zstd.NewWriter(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(e.EncodeAll([]byte("layer"), nil))
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0xff, 0xff})
	f.Add([]byte("plain"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, archive []byte) {
		r, err := inflate(bytes.NewReader(archive))
		if err != nil {
			return
		}
		n, _ := io.Copy(io.Discard, io.LimitReader(r, 64<<20))
		if err := r.Close(); err != nil {
			t.Log(err)
		}
		if len(archive) > 0 && n == 64<<20 && len(archive) < 16<<10 {
			t.Logf("%d bytes are %d or more", len(archive), n) // the importer streams: nothing holds them
		}
	})
}
