package runtime

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"

	"github.com/yare-project/yare/node/image"
)

// ensurePause makes the pause image from the program of that name, unless the
// store has it already. The store keeps it pinned.
func ensurePause(ctx context.Context, s *image.Store, binDir string) error {
	img, err := image.Build(image.Spec{
		Files:      map[string]string{"/pause": filepath.Join(binDir, "pause")},
		Entrypoint: []string{"/pause"},
		User:       "65535:65535",
	})
	if err != nil {
		return fmt.Errorf("pause image: %w", err)
	}
	has, err := s.Has(ctx, PauseImage)
	if err != nil || has {
		return err
	}
	var archive bytes.Buffer
	if err := image.Save(&archive, PauseImage, img); err != nil {
		return fmt.Errorf("pause image: %w", err)
	}
	if _, err := s.Import(ctx, &archive, image.ImportOptions{Pin: true}); err != nil {
		return fmt.Errorf("pause image: %w", err)
	}
	return nil
}
