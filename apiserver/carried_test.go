package apiserver_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/yare-project/yare/store/mem"
)

// seen is what a watcher knows after the events that it read: resource versions by name.
type seen map[string]string

// follow reads a stream of events until it has seen the object "end", which a watcher of any selector gets.
func follow(r io.Reader) (seen, error) {
	known := seen{}
	type metadata struct{ Name, ResourceVersion string }
	dec := json.NewDecoder(r)
	for {
		var e struct {
			Type   string
			Object struct {
				Metadata metadata
				Rows     []struct{ Object struct{ Metadata metadata } }
			}
		}
		if err := dec.Decode(&e); err != nil {
			return known, err
		}
		m := e.Object.Metadata
		if len(e.Object.Rows) > 0 {
			m = e.Object.Rows[0].Object.Metadata
		}
		_, knew := known[m.Name]
		switch {
		case e.Type == "BOOKMARK":
			continue
		case m.Name == "end":
			return known, nil
		case knew != (e.Type != "ADDED"):
			return known, fmt.Errorf("%s of %s, known: %v", e.Type, m.Name, knew)
		case knew && m.ResourceVersion <= known[m.Name] && len(m.ResourceVersion) == len(known[m.Name]):
			return known, fmt.Errorf("%s of %s went back from %s to %s", e.Type, m.Name, known[m.Name], m.ResourceVersion)
		}
		if known[m.Name] = m.ResourceVersion; e.Type == "DELETED" {
			delete(known, m.Name)
		}
	}
}

// Very many watches of one connection, some of whose clients don't read for long, all learn every change in order.
func TestWatchesOfOneConnectionMissNothing(t *testing.T) {
	h := start(t, func(c *apiserverConfig) { c.Store = mem.New(mem.Config{CheckImmutable: true, RingBytes: 64 << 20}) })
	s := h.serve(t, true)
	const table = "application/json;as=Table;g=meta.k8s.io;v=v1"
	kinds := []struct{ query, accept, selects string }{
		{"", "", ""},
		{"&labelSelector=app%3Da", "", "?labelSelector=app%3Da"},
		{"", table, ""},
		{"&allowWatchBookmarks=true", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", ""},
	}
	c := s.client(true)
	type outcome struct {
		kind  int
		known seen
		err   error
	}
	outcomes := make(chan outcome, 40)
	written := make(chan struct{})
	for i := range 40 {
		k := kinds[i%len(kinds)]
		req := must(http.NewRequestWithContext(t.Context(), "GET", s.url("/api/v1/namespaces/ns/configmaps?watch=1&resourceVersion=1"+k.query), nil))
		if k.accept != "" {
			req.Header.Set("Accept", k.accept)
		}
		res := must(c.Do(req))
		go func() {
			defer res.Body.Close()
			if i%10 == 0 {
				<-written // meanwhile the stream's window runs dry
			}
			known, err := follow(res.Body)
			outcomes <- outcome{i % len(kinds), known, err}
		}()
	}
	write(t, c, s.url, 300)
	close(written)
	if code := post(t, c, s.url("/api/v1/namespaces/ns/configmaps"), "end", "a", 0); code != 201 {
		t.Fatal("end:", code)
	}
	for range 40 {
		o := <-outcomes
		want := listed(h, kinds[o.kind].selects)
		if diff := cmp.Diff(want, o.known); diff != "" || o.err != nil {
			t.Errorf("a watch of kind %d ended with %v, and knows (-want +got):\n%s", o.kind, o.err, diff)
		}
	}
}

// write makes n random changes to few objects of up to 60 KB, from several clients.
func write(t *testing.T, c *http.Client, url func(string) string, n int) {
	const path = "/api/v1/namespaces/ns/configmaps"
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(7, uint64(w)))
			for range n / 4 {
				name := fmt.Sprintf("w%d-%d", w, r.IntN(4)) // each client its own objects
				if r.IntN(4) == 0 {
					req := must(http.NewRequest("DELETE", url(path+"/"+name), nil))
					res := must(c.Do(req))
					res.Body.Close()
					continue
				}
				app, size := string(rune('a'+r.IntN(2))), r.IntN(60<<10)
				if post(t, c, url(path), name, app, size) == http.StatusConflict {
					req := must(http.NewRequest("PUT", url(path+"/"+name), strings.NewReader(document(name, app, size))))
					req.Header.Set("Content-Type", "application/json")
					res := must(c.Do(req))
					res.Body.Close()
				}
			}
		})
	}
	wg.Wait()
}

func document(name, app string, size int) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"app":%q}},"data":{"x":"%s"}}`, name, app, strings.Repeat("x", size))
}

func post(t *testing.T, c *http.Client, url, name, app string, size int) int {
	res, err := c.Post(url, "application/json", strings.NewReader(document(name, app, size)))
	if err != nil {
		t.Error(err)
		return 0
	}
	defer res.Body.Close()
	return res.StatusCode
}

func listed(h *harness, query string) seen {
	var list struct {
		Items []struct {
			Metadata struct{ Name, ResourceVersion string }
		}
	}
	if err := json.Unmarshal([]byte(h.do("GET", "/api/v1/namespaces/ns/configmaps"+query, "").body), &list); err != nil {
		h.t.Fatal(err)
	}
	out := seen{}
	for _, item := range list.Items {
		if item.Metadata.Name != "end" {
			out[item.Metadata.Name] = item.Metadata.ResourceVersion
		}
	}
	return out
}
