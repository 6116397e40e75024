package aggregation

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/openapiconv"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/yare-project/yare/apiserver/openapi"
)

// documents are the OpenAPI documents of a backend's own group version, compressed.
type documents struct {
	v2, v3 []byte
	// tagV2 and hashV3 are the other server's names for what it sent, by which it is asked for again.
	tagV2, hashV3 string
	// hash is that of v3, for this server's clients.
	hash string
}

// Documents are the OpenAPI documents of what others serve. The number changes whenever they do.
func (a *Aggregator) Documents() ([]openapi.Remote, uint64) {
	revision := a.documents.Load()
	v := a.now.Load()
	if v == nil {
		return nil, revision
	}
	var out []openapi.Remote
	for gv, b := range v.backends {
		b.mu.Lock()
		d := b.learned.documents
		b.mu.Unlock()
		out = append(out, openapi.Remote{GroupVersion: gv, V2: d.v2, V3: d.v3, Hash: d.hash})
	}
	slices.SortFunc(out, func(x, y openapi.Remote) int {
		return strings.Compare(x.GroupVersion.String(), y.GroupVersion.String())
	})
	return out, revision
}

// fetchDocuments renews both documents, if they are new. A server may lack either.
func (b *backend) fetchDocuments(ctx context.Context) error {
	b.mu.Lock()
	had := b.learned.documents
	b.mu.Unlock()
	now := had
	full, err := b.fetchV2(ctx, &now)
	if err != nil {
		return err
	}
	if err := b.fetchV3(ctx, &now, full); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.learned.documents = now
	if !bytes.Equal(had.v2, now.v2) || had.hash != now.hash {
		b.a.documents.Add(1)
	}
	return nil
}

// fetchV2 returns the document if it is new.
func (b *backend) fetchV2(ctx context.Context, d *documents) (*spec.Swagger, error) {
	got, err := b.get(ctx, "/openapi/v2", http.Header{"Accept": {"application/json"}, "If-None-Match": {d.tagV2}}, maxDocument)
	switch {
	case err != nil:
		return nil, err
	case got.code == http.StatusNotModified:
		return nil, nil
	case got.code != http.StatusOK:
		d.v2, d.tagV2 = nil, ""
		return nil, nil
	}
	var doc spec.Swagger
	if err := json.Unmarshal(got.body, &doc); err != nil {
		return nil, fmt.Errorf("/openapi/v2: %w", err)
	}
	if doc.Paths == nil {
		doc.Paths = &spec.Paths{}
	}
	own := aggregator.FilterSpecByPathsWithoutSideEffects(&doc, []string{b.path() + "/"})
	if d.v2, err = pack(own); err != nil {
		return nil, err
	}
	d.tagV2 = got.header.Get("ETag")
	return own, nil
}

// fetchV3 takes the document from the index, or makes it from the older form if the server has no index.
func (b *backend) fetchV3(ctx context.Context, d *documents, v2 *spec.Swagger) error {
	index, err := b.get(ctx, "/openapi/v3", http.Header{"Accept": {"application/json"}}, maxDocument)
	if err != nil {
		return err
	}
	if index.code != http.StatusOK {
		if v2 == nil { // none, or the one from which the document was made
			if d.v2 == nil {
				d.v3, d.hash = nil, ""
			}
			return nil
		}
		body, err := json.Marshal(openapiconv.ConvertV2ToV3(v2))
		if err != nil {
			return fmt.Errorf("convert OpenAPI v2: %w", err)
		}
		return d.keepV3(body, "")
	}
	var paths struct {
		Paths map[string]struct {
			URL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(index.body, &paths); err != nil {
		return fmt.Errorf("/openapi/v3: %w", err)
	}
	to := paths.Paths[strings.TrimPrefix(b.path(), "/")].URL
	if to == "" {
		d.v3, d.hash, d.hashV3 = nil, "", ""
		return nil
	}
	if d.v3 != nil && d.hashV3 == to && strings.Contains(to, "hash=") {
		return nil
	}
	doc, err := b.get(ctx, to, http.Header{"Accept": {"application/json"}}, maxDocument)
	if err != nil {
		return err
	}
	if doc.code != http.StatusOK || !json.Valid(doc.body) {
		return fmt.Errorf("%s answers %d with %d bytes that are no document", to, doc.code, len(doc.body))
	}
	return d.keepV3(doc.body, to)
}

func (d *documents) keepV3(body []byte, at string) (err error) {
	d.hashV3 = at
	d.hash = fmt.Sprintf("%X", sha512.Sum512(body))
	d.v3, err = squeeze(body)
	return err
}

func pack(doc any) ([]byte, error) {
	body, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encode OpenAPI: %w", err)
	}
	return squeeze(body)
}

func squeeze(body []byte) ([]byte, error) {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(body); err != nil {
		return nil, fmt.Errorf("compress OpenAPI: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("compress OpenAPI: %w", err)
	}
	return bytes.Clone(out.Bytes()), nil
}
