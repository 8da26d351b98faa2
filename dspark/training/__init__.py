"""Training of block drafters: on-policy answers, anchors, losses, and a trainer that resumes exactly."""
