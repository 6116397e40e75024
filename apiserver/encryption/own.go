package encryption

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"

	"github.com/yare-project/yare/internal/pki"
)

// ownFormat is the file of the cluster's own key. secretbox takes nonces of 24 random bytes, so that one key lasts as long as the cluster.
const ownFormat = `# The key under which this cluster keeps Secrets on its disk. Without this file they cannot be read: back it up, apart from the database.
# To rotate: put a new key before this one, restart, and write every Secret once (kubectl get secrets -A -o json | kubectl replace -f -).
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - secretbox:
      keys:
      - name: own
        secret: %s
  - identity: {}
`

// makeOwn draws the cluster's own key and keeps it for the owner's eyes only.
func makeOwn(path string) ([]byte, error) {
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return nil, fmt.Errorf("draw the key for encryption at rest: %w", err)
	}
	content := fmt.Appendf(nil, ownFormat, base64.StdEncoding.EncodeToString(secret))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if err := pki.WriteFile(path, content, 0o600); err != nil {
		return nil, fmt.Errorf("keep the key for encryption at rest: %w", err)
	}
	return content, nil
}
