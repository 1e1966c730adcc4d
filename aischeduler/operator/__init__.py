"""The operator of BatchProcess and TrainingJob: it makes pods and Jobs and keeps them; it places no pod."""
