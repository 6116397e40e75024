package aggregation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"time"

	discoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/apiserver/discovery"
)

const (
	refresh      = time.Minute // between two looks at what an available server says of itself
	fetchTimeout = 10 * time.Second
	// What another server may say of itself, in bytes.
	maxDiscovery = 16 << 20
	maxDocument  = 64 << 20
)

// learned is what another server said of its group version.
type learned struct {
	resources []discoveryv2.APIResourceDiscovery
	fresh     bool
	etag      string // of the whole discovery document
	documents documents
}

// learn fetches what the other server says of itself while it is available, until ctx ends.
func (b *backend) learn(ctx context.Context) {
	wait := firstWait
	for {
		next := refresh
		if b.verdict.Load().passed() {
			if err := b.fetch(ctx); err != nil {
				b.a.cfg.Log.Debug("an API server does not say what it serves", "apiservice", b.name, "error", err)
				next, wait = wait, min(2*wait, refresh)
			} else {
				wait = firstWait
			}
		}
		timer := b.a.cfg.Clock.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-b.passing:
			wait = firstWait
		case <-timer.C():
		}
		timer.Stop()
	}
}

// fetch renews everything. A server without OpenAPI is no worse for it.
func (b *backend) fetch(ctx context.Context) error {
	if err := b.fetchDiscovery(ctx); err != nil {
		b.stale()
		return fmt.Errorf("discovery: %w", err)
	}
	if err := b.fetchDocuments(ctx); err != nil {
		return fmt.Errorf("OpenAPI: %w", err)
	}
	return nil
}

// inherit goes on with what is known when a server's APIService changes, until it is fetched anew.
func (b *backend) inherit(old *backend) {
	old.mu.Lock()
	defer old.mu.Unlock()
	b.learned = old.learned
	b.learned.etag = ""
}

// stale says that what is known may no longer be so.
func (b *backend) stale() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.learned.fresh {
		b.learned.fresh = false
		b.a.known.Add(1)
	}
}

const aggregated = ";as=APIGroupDiscoveryList"

func (b *backend) fetchDiscovery(ctx context.Context) error {
	b.mu.Lock()
	etag := b.learned.etag
	b.mu.Unlock()
	accept := "application/json;g=apidiscovery.k8s.io;v=v2" + aggregated + ",application/json;g=apidiscovery.k8s.io;v=v2beta1" + aggregated
	answer, err := b.get(ctx, "/apis", http.Header{"Accept": {accept}, "If-None-Match": {etag}}, maxDiscovery)
	if err != nil {
		return err
	}
	if answer.code == http.StatusNotModified && etag != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.freshen(b.learned.resources, etag)
		return nil
	}
	if answer.code != http.StatusOK || !isAggregated(answer.header.Get("Content-Type")) {
		return b.fetchLegacy(ctx)
	}
	var list discoveryv2.APIGroupDiscoveryList // v2beta1 has the same fields
	if err := json.Unmarshal(answer.body, &list); err != nil {
		return fmt.Errorf("/apis: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.freshen(resourcesOf(list, b), answer.header.Get("ETag"))
	return nil
}

// freshen is called with the lock held.
func (b *backend) freshen(resources []discoveryv2.APIResourceDiscovery, etag string) {
	changed := !b.learned.fresh || !sameJSON(b.learned.resources, resources)
	b.learned.resources, b.learned.etag, b.learned.fresh = resources, etag, true
	if changed {
		b.a.known.Add(1)
	}
}

func isAggregated(contentType string) bool {
	_, parameters, err := mime.ParseMediaType(contentType)
	return err == nil && parameters["as"] == "APIGroupDiscoveryList" && parameters["g"] == "apidiscovery.k8s.io" &&
		(parameters["v"] == "v2" || parameters["v"] == "v2beta1")
}

// resourcesOf picks the backend's own version. Clients rely on responseKind not to be nil.
func resourcesOf(list discoveryv2.APIGroupDiscoveryList, b *backend) []discoveryv2.APIResourceDiscovery {
	for _, g := range list.Items {
		for _, v := range g.Versions {
			if g.Name != b.gv.Group || v.Version != b.gv.Version {
				continue
			}
			for i := range v.Resources {
				fill(&v.Resources[i].ResponseKind)
				for j := range v.Resources[i].Subresources {
					fill(&v.Resources[i].Subresources[j].ResponseKind)
				}
			}
			return v.Resources
		}
	}
	return nil
}

func fill(gvk **metav1.GroupVersionKind) {
	if *gvk == nil {
		*gvk = &metav1.GroupVersionKind{}
	}
}

// fetchLegacy asks a server that has no aggregated discovery.
func (b *backend) fetchLegacy(ctx context.Context) error {
	answer, err := b.get(ctx, b.path(), http.Header{"Accept": {"application/json"}}, maxDiscovery)
	if err != nil {
		return err
	}
	if answer.code != http.StatusOK {
		return fmt.Errorf("%s answers %d", b.path(), answer.code)
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(answer.body, &list); err != nil {
		return fmt.Errorf("%s: %w", b.path(), err)
	}
	resources := discovery.Aggregate(b.gv, list.APIResources)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.freshen(resources, "")
	return nil
}

func sameJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

type answer struct {
	code   int
	header http.Header
	body   []byte
}

var errTooLarge = errors.New("the answer is larger than this server reads")

// get asks the other server as this server itself.
func (b *backend) get(ctx context.Context, path string, header http.Header, limit int64) (*answer, error) {
	if b.broken != nil {
		return nil, b.broken
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	to, err := url.ParseRequestURI(path)
	if err != nil {
		return nil, err
	}
	to.Scheme, to.Host = "https", b.host()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), nil)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		if values[0] != "" {
			req.Header[name] = values
		}
	}
	asServer(req)
	response, err := b.link.Load().requests.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, limit+1))
	if err == nil && int64(len(body)) > limit {
		err = errTooLarge
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &answer{response.StatusCode, response.Header, body}, nil
}
