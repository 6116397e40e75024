package dra

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// stateFile is where what is prepared is kept. One write serves all that came before it began.
type stateFile struct {
	path string

	mu    sync.Mutex
	saved uint64 // the version that is on disk
}

// kept is the file's content.
type kept struct {
	Claims []*claim `json:"claims"`
}

// read answers what an earlier agent left. A file that can't be read stops the node: what drivers prepared for pods would stay so, and nobody would know.
func (f *stateFile) read() ([]*claim, error) {
	body, err := os.ReadFile(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var k kept
	if err = json.Unmarshal(body, &k); err == nil {
		err = k.check()
	}
	if err != nil {
		return nil, fmt.Errorf("%s is damaged (%w). It lists the ResourceClaims that DRA drivers have prepared on this node. Put it back from a copy; or restart the machine or the drivers "+
			"so that nothing is prepared any more, and remove the file", f.path, err)
	}
	for _, c := range k.Claims {
		c.ready()
	}
	return k.Claims, nil
}

// check finds what no agent would write.
func (k *kept) check() error {
	if k.Claims == nil {
		return errors.New("it has no list of claims")
	}
	for i, c := range k.Claims {
		if c == nil || c.UID == "" || c.Namespace == "" || c.Name == "" || len(c.Pods) == 0 {
			return fmt.Errorf("claim %d of %d lacks its uid, namespace, name or pods", i+1, len(k.Claims))
		}
	}
	return nil
}

// save brings the file up to date, so that a crash leaves the old or the new one.
func (m *Manager) save() error {
	m.mu.Lock()
	want := m.version
	m.mu.Unlock()
	m.file.mu.Lock()
	defer m.file.mu.Unlock()
	if m.file.saved >= want {
		return nil
	}
	version, body, err := m.state()
	if err == nil {
		err = replaceFile(m.file.path, body)
	}
	if err != nil {
		return fmt.Errorf("prepared devices: %w", err)
	}
	m.file.saved = version
	return nil
}

func (m *Manager) state() (version uint64, body []byte, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := kept{Claims: []*claim{}}
	for _, c := range m.claims {
		k.Claims = append(k.Claims, c)
	}
	slices.SortFunc(k.Claims, compare)
	body, err = json.Marshal(k)
	return m.version, body, err
}

func replaceFile(path string, body []byte) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".devices-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if _, err = f.Write(body); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

// syncDir puts a new name on disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
